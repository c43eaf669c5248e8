"""What the reference peer answers around the scheduling cycle, written from docs/protocol.md alone."""

from reference_wire import FAULT, RESP, error, frame

PROFILE_PICK, PROFILE_PROCESS, SCREEN, ADMIT, REQUEST_HEADERS, PARSE = range(6, 12)
PRE_REQUEST, RESPONSE_HEADERS, RESPONSE_BODY, SATURATION = range(12, 16)
DUMP_STATE = 35
POINTS = {
    "profile_handler": (PROFILE_PICK, PROFILE_PROCESS),
    "screen": (SCREEN,),
    "admit": (ADMIT,),
    "request_headers": (REQUEST_HEADERS,),
    "parse": (PARSE,),
    "pre_request": (PRE_REQUEST,),
    "response_headers": (RESPONSE_HEADERS,),
    "response_body": (RESPONSE_BODY,),
    "saturation": (SATURATION,),
    "dump_state": (DUMP_STATE,),
}
STEWARD, LISTENER = "reference-steward", "reference-listener"
POINT_TYPES = {
    STEWARD: {"points": [point for point in POINTS if not point.startswith("response")]},
    LISTENER: {"points": ["pre_request", "response_headers", "response_body"], "every_chunk": True},
}
METHODS_OF = {
    name: {method for point in declared["points"] for method in POINTS[point]} for name, declared in POINT_TYPES.items()
}
POINT_TYPES[STEWARD]["claims"] = ["chat" if FAULT == "odd-claims" else "/v1/chat/completions"]
FACTS = {STEWARD: {"request_headers": ["X-Steward" if FAULT == "odd-facts" else "x-steward"]}}
ERROR = {"code": "PLUGIN_ERROR", "message": "as asked", "executed": "yes"}


def misdirected(stream, method, handle, generation, handles):
    """The error that a call with a bad handle is answered with; None for a good one."""
    if FAULT == "any-point-handle":
        return None
    if handle[0] != generation:
        return error(stream, "STALE_HANDLE", "of another generation")
    _, name = handles.get(handle[1], ("", ""))
    return (
        None if method in METHODS_OF.get(name, ()) else error(stream, "PROTOCOL_VIOLATION", "no handle of that point")
    )


def answer_point(stream, method, args):
    """The answer to a call around the cycle."""
    return frame(RESP, stream, RESULTS[method](*args[1:]))


def screen(view, candidates, requests):
    return [b"\xff" * (requests[0] * ((view[1] + 7) // 8)), []]


def admit(view, candidates, requests):
    code = "teapot" if FAULT == "odd-verdicts" else "forbidden"
    return [[None, *[[code, "not-today", "no"]] * (requests[0] - 1)], [] if requests[0] < 3 else [[0, 0, ERROR]]]


def pre_request(view, requests, picks):
    return [[{"request": {"x-steward": targets[0]}} for targets, _, _ in picks], []]


RESULTS = {
    PROFILE_PICK: lambda view, requests, profiles, results: [name for name in profiles if name not in results],
    PROFILE_PROCESS: lambda view, requests, results: {
        "primary": "other" if FAULT == "odd-primary" else next(iter(results)),
        "results": results,
    },
    SCREEN: screen,
    ADMIT: admit,
    REQUEST_HEADERS: lambda requests: [[{"attributes": {"tier": "gold", "weight": 0.5}}] * requests[0], []],
    PARSE: lambda path, headers, body: {"model": "m", "prompt": body.decode(), "stream": False},
    PRE_REQUEST: pre_request,
    SATURATION: lambda view: 0.25,
    DUMP_STATE: lambda: {"seen": "x" * 300_000 if FAULT == "large-dump" else 0},
}
