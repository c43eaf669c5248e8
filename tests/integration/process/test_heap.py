"""A host's threads share one heap: what they allocated would otherwise keep the heaps of threads that are gone."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

COUNT_HEAPS = """
import ctypes, sys, threading
from hotbay.process.heap import use_one_heap
if sys.argv[1] == "one":
    use_one_heap()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.fopen.restype = ctypes.c_void_p
meet = threading.Barrier(4)

def allocate():
    # At once: a thread that ended leaves its heap to the next.
    meet.wait()
    for _ in range(1000):
        library.malloc(1000)
    meet.wait()

threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
out = ctypes.c_void_p(library.fopen(b"/dev/stdout", b"w"))
library.malloc_info(0, out)
library.fflush(out)
"""


@pytest.mark.parametrize(("wanted", "is_one"), [("one", True), ("many", False)])
def test_threads_allocate_from_one_heap(wanted: str, *, is_one: bool):
    command = [sys.executable, "-c", COUNT_HEAPS, wanted]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout

    assert (told.count("<heap nr=") == 1) is is_one
