"""Names of model servers to addresses, for all of a process that dials by name: `connect` is what others call.

`names` decides what is looked up and what is told meanwhile; `resolver` does it, in threads of its own. The system's resolver
is asked, so that /etc/hosts and nsswitch.conf hold. Import rule: `names` is pure, and nothing else of hotbay is imported here.
"""
