"""What request bodies mean, by path: the host's own parsers as tables, and which one a path belongs to.

Import rule: all modules are pure and import each other, `hotbay.gateway.answers`, `hotbay.scheduling.prompts` and orjson.
`form` says what a parser is, each other module is one parser or one routine.
"""
