"""Which part of a plugin's answer is kept to be told afterwards, and how much memory that holds.

Pure. A reply may have a megabyte of what is never told: texts of errors, columns, and whatever else a plugin answers for a
request. What is kept of it is bounded by what was asked, or weighed: above `MAX_WEIGHED_BYTES` it is not kept.
"""

import sys
from typing import Final

from hotbay_sdk.protocol import Method, Value

from hotbay.scheduling.batch import row_errors

__all__ = ["MAX_WEIGHED_BYTES", "TOO_LONG", "kept_part"]

TOO_LONG: Final = "too long to keep"
"""In the place of answers that are; told by its identity, for a plugin may say as much."""

MAX_WEIGHED_BYTES: Final = 128 * 1024
"""Of one batch's answers: 64 requests with 2 KiB each. As values in memory: they are weighed in at most 8192 steps."""
_CODE_BYTES: Final = 512
"""Of one error as it is kept: two lists, two numbers, a map and a code."""
_LEAST_VALUE_BYTES: Final = 16


def kept_part(method: Method, steps: int, requests: int, result: Value) -> tuple[Value, int]:
    """The part of a result that was applied, in the result's own form, and its bytes in memory beside scores and bits.

    `TOO_LONG` stands in the place of answers that are. Errors are kept as their codes. Of a producer its columns' names
    are kept, which are declared ones; scores and bits are as many as the snapshot's rows, and counted with these.
    """
    if method is Method.RUN:
        assert isinstance(result, list), "it was applied"
        bits, scores, errors = result
        if not errors:
            return result, 0
        codes = _codes(errors, steps, requests)
        return [bits, scores, codes], len(codes) * _CODE_BYTES
    if not isinstance(result, list) or method is Method.PROFILE_PICK:
        return _light(result)
    answers, errors = result
    codes = _codes(errors, 1, requests)
    if method is Method.SCREEN:
        return [answers, codes], len(codes) * _CODE_BYTES
    if method is Method.PRODUCE and isinstance(answers, dict):
        answers = dict.fromkeys(answers)
    kept, held_bytes = _light(answers)
    return [kept, codes], held_bytes + len(codes) * _CODE_BYTES


def _light(value: Value) -> tuple[Value, int]:
    held_bytes = _weigh(value)
    return (TOO_LONG, 0) if held_bytes > MAX_WEIGHED_BYTES else (value, held_bytes)


def _weigh(value: Value) -> int:
    """Bytes of a value and of all in it; more than the most as soon as they are."""
    held_bytes, left = 0, [value]
    while left and held_bytes <= MAX_WEIGHED_BYTES:
        one = left.pop()
        held_bytes += max(_LEAST_VALUE_BYTES, sys.getsizeof(one))
        if held_bytes > MAX_WEIGHED_BYTES:
            break
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one
            left += one.values()
    return held_bytes


def _codes(errors: Value, steps: int, requests: int) -> list[Value]:
    return [[step, request, {"code": code}] for (step, request), code in row_errors(errors, steps, requests).items()]
