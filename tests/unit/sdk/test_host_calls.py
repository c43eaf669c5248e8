"""What an instance may ask its host, in the harness."""

from collections.abc import Callable

import pytest
from hotbay_sdk import Context, HostCallError, Plugin, Scorer
from hotbay_sdk._context import NO_HOST
from hotbay_sdk.protocol import ValueRefusedError
from hotbay_sdk.testing import PluginCallError, PluginHarness

Asked = Callable[[Context], float]


def asking(ask: Asked) -> Plugin:
    plugin = Plugin("asking")

    @plugin.type("asker")
    class Asker(Scorer):
        def score(self, request, endpoint):
            return ask(self.context)

    return plugin


def score(ask: Asked, **answers: Callable[..., object]) -> float:
    with PluginHarness(asking(ask), host=answers) as harness:
        harness.configure("ref", "asker")
        return harness.score("ref", {"a": {}}, raw=True)[0]["a"]


@pytest.mark.parametrize(
    ("name", "ask", "answer"),
    [
        ("log", lambda c: c.log("info", "text", n=1) or 1, lambda level, text, fields: None),
        ("metric", lambda c: c.metric("n", 2.0, kind="a") or 1, lambda name, n, labels: None),
        ("storage_get", lambda c: len(c.storage_get("k")), lambda key: key.encode()),
        ("storage_get", lambda c: c.storage_get("k") is None or 9, lambda key: None),
        ("storage_put", lambda c: c.storage_put("k", b"v") or 1, lambda key, value: None),
        ("secret", lambda c: len(c.secret("t")), lambda name: name),
        ("endpoints", lambda c: len(c.endpoints()), lambda: [{"id": "a"}, 7]),
        ("endpoints", lambda c: len(c.endpoints()) + 1, lambda: None),
        ("recycle", lambda c: c.recycle("leaks") or 1, lambda reason: None),
        ("now", lambda c: c.now() - 1.5e9, lambda: 1.5e9 + 1),
        ("now", lambda c: c.now() + 1, lambda: None),
        ("random", lambda c: len(c.entropy(1)), lambda count: bytes(count)),
        ("random", lambda c: len(c.entropy(1)) + 1, lambda count: None),
    ],
)
def test_each_call_has_a_method_of_the_context(name: str, ask: Asked, answer: Callable[..., object]) -> None:
    assert score(lambda c: float(ask(c)), **{name: answer}) == 1


def test_a_call_that_is_not_granted_raises_with_its_code() -> None:
    def ask(context: Context) -> float:
        with pytest.raises(HostCallError, match="now is not granted") as refused:
            context.now()
        assert refused.value.code == "UNAVAILABLE"
        return 1.0

    assert score(ask) == 1


def test_without_a_host_every_call_is_unavailable_and_nothing_is_cancelled() -> None:
    context = Context("ref", "asker")
    with pytest.raises(HostCallError, match="UNAVAILABLE"):
        context.storage_get("k")
    assert not context.cancelled
    assert not NO_HOST.cancelled()


def test_a_dialled_socket_is_one_and_none_is_an_error() -> None:
    with pytest.raises(PluginCallError, match="passed no socket"):
        score(lambda c: c.dial("h", 1).fileno(), dial=lambda host, port: None)


def test_arguments_that_cannot_cross_are_refused_where_they_are_made() -> None:
    def ask(context: Context) -> float:
        with pytest.raises(ValueRefusedError):
            context.storage_put("k", {1})  # type: ignore[arg-type]  # the point
        return 1.0

    assert score(ask, storage_put=lambda key, value: None) == 1


def test_cancelled_is_what_the_harness_says() -> None:
    with PluginHarness(asking(lambda c: float(c.cancelled))) as harness:
        harness.configure("ref", "asker")
        assert harness.score("ref", {"a": {}})[0]["a"] == 0
        harness.cancelled = True
        assert harness.cancelled
        assert harness.score("ref", {"a": {}})[0]["a"] == 1
