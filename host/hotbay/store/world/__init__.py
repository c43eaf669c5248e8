"""What this host knows for good: refs, completions, grants, quarantine, pins, history; with transactions and watch.

`records` are the values, `engine` is what every engine does; `sqlite` keeps them in one file, `memory` in none; `opened`
gets a host the one that it is to have.
Import rule: hotbay.errors, hotbay.store.digests, hotbay.store.files, anyio and the standard library only. No SQL outside
`sqlite` and `migrations`.
"""
