"""The echo's call is 100 bytes long once the process knows the endpoint."""

from hotbay_sdk.protocol import Connection, Method, Role

from benchmarks.figures.echo import EPOCH, FRAME_BYTES, call_arguments


def test_call_arguments_fill_a_frame_of_100_bytes():
    args = call_arguments((1, 1), introduce=False)

    _, frame = Connection(Role.HOST).start_call(Method.RUN, args, deadline_us=1_000_000, epoch=EPOCH)

    assert len(frame) == FRAME_BYTES
