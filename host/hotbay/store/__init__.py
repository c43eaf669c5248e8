"""What this host holds for good: content-addressed blobs, and the world: the record of what exists and was decided.

`blobs` and `parts` hold bytes, `world/` the records, `gc` and `budget` keep it small, `layout` makes it readable to others,
`state_dir` gives it to one host at a time.

Import rule: hotbay.errors, anyio and the standard library only. What is no coroutine and no pure module blocks: callers use
a worker thread.
"""
