"""What an operator writes: documents, HostConfig, EndpointPickerConfig, and their live reload.

Import rule: nothing of hotbay but `hotbay.errors` (and this folder). `documents` is the only door to
pyyaml, `host_config` and its `host_fields` the only ones to pydantic, `reload` the only one to
watchfiles and to the file system. All but `reload` are pure: text and environment are arguments.
"""
