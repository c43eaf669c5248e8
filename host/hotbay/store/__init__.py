"""What this host holds for good: content-addressed blobs and the record of which packages are complete.

Import rule: hotbay.errors and the standard library only. Everything here blocks; callers use a worker thread.
"""
