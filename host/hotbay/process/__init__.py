"""One plugin process: how it is launched, started, watched, listened to and killed; and a helper of the host's own.

Import rule: may import `hotbay.errors` and `hotbay_sdk.protocol` (codes only); nothing else of hotbay.
`stage0` is never imported: it is a file that another interpreter runs.
"""
