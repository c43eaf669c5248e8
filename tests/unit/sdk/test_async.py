"""Async methods: one loop that is kept, outcomes by request, deadlines."""

import asyncio
import struct
import threading

import pytest
from hotbay_sdk import DataProducer, Filter, Picker, Plugin, PreRequest, Scorer
from hotbay_sdk._dispatch import Dispatcher
from hotbay_sdk.protocol import Method
from hotbay_sdk.protocol.calls import POINT_FILTER, POINT_SCORE

VIEW = [1, 2, 1, ["a", "b"], {}]
loops: list[object] = []


def floats(packed):
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


plugin = Plugin("test")


@plugin.type("async", reads=["request.model"], produces={"M.x": "request"})
class Async(Scorer, Filter, Picker, DataProducer, PreRequest):
    async def score(self, request, endpoint):
        loops.append(asyncio.get_running_loop())
        if request.model == "raise":
            raise KeyboardInterrupt("from an author")
        if request.model == "exit":
            raise SystemExit(4)
        if request.model == "hang":
            await asyncio.Event().wait()
        await asyncio.get_running_loop().run_in_executor(None, bytes)
        return 0.5

    async def keep_batch(self, requests, endpoints):
        return [[True, False] for _ in requests]

    async def pick(self, request, candidates, n):
        return candidates[:n]

    async def produce(self, request, endpoints):
        return {"M.x": 3}

    async def pre_request(self, request, picked, endpoints):
        loops.append(asyncio.get_running_loop())

    async def check_ready(self):
        return False

    async def close(self):
        loops.append("closed")


@pytest.fixture
def dispatcher():
    loops.clear()
    made = Dispatcher(generation=1)
    made.provide(plugin)
    create = [{"handle": [1, 1], "name": "ref", "type": "async", "parameters": {}}]
    made.control_call(Method.CONFIGURE, [{"create": create, "drop": []}])
    yield made
    made.close()


def run(dispatcher, models, *, points=(POINT_SCORE,), timeout_s=5.0):
    requests = [len(models), [], None, {"request.model": models}, {}]
    steps = [[point, [1, 1]] for point in points]
    return dispatcher.call(Method.RUN, [steps, VIEW, None, requests], timeout_s=timeout_s)


def test_every_async_point_answers(dispatcher):
    bits, scores, errors = run(dispatcher, ["x"], points=(POINT_FILTER, POINT_SCORE))
    assert (bits, floats(scores), errors) == (b"\x01", [0.5, 0.0], [])
    requests = [1, [], None, {"request.model": ["x"]}, {}]
    assert dispatcher.call(Method.PICK, [[1, 1], VIEW, None, bytes(8), requests, 1]) == [[[0]], []]
    data, errors = dispatcher.call(Method.PRODUCE, [[1, 1], VIEW, None, requests])
    assert (floats(data["M.x/request"]), errors) == ([3.0], [])
    dispatcher.call(Method.PRE_REQUEST, [[1, 1], VIEW, requests, [[["a"], "p", {}]]])
    assert dispatcher.control_call(Method.CHECK_READY, []) == {"ready": False, "waiting": ["ref"]}
    assert len(set(map(id, loops))) == 1, "one loop, kept"


def test_fault_of_one_request_leaves_the_others_and_the_loop(dispatcher):
    _, scores, errors = run(dispatcher, ["x", "raise", "y"])
    assert floats(scores) == [0.5, 0.5, 0, 0, 0.5, 0.5]
    assert errors == [[0, 1, {"code": "PLUGIN_ERROR", "message": "KeyboardInterrupt: from an author"}]]
    assert run(dispatcher, ["x"])[2] == []


def test_deadline_cancels_only_what_is_late(dispatcher):
    _, scores, errors = run(dispatcher, ["x", "hang"], timeout_s=0.5)
    assert floats(scores) == [0.5, 0.5, 0, 0]
    assert [(request, error["code"]) for _, request, error in errors] == [(1, "DEADLINE_EXCEEDED")]


def test_system_exit_passes(dispatcher):
    with pytest.raises(SystemExit):
        run(dispatcher, ["exit"])


def test_close_ends_the_loops_thread(dispatcher):
    run(dispatcher, ["x"])
    dispatcher.close()
    assert loops[-1] == "closed"
    assert not any(thread.name == "hotbay-async" for thread in threading.enumerate())


def test_sync_types_start_no_loop():
    sync_only = Plugin("test")

    @sync_only.type("sync")
    class Sync(Scorer):
        def score(self, request, endpoint):
            return 1.0

    made = Dispatcher(generation=1)
    made.provide(sync_only)
    create = [{"handle": [1, 1], "name": "ref", "type": "sync", "parameters": {}}]
    made.control_call(Method.CONFIGURE, [{"create": create, "drop": []}])
    assert made._runner is None
    made.close()
