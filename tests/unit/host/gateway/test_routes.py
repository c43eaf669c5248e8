"""The table of paths and methods."""

import pytest
from hotbay.gateway.answers import Refusal
from hotbay.gateway.routes import Match, Route, match_route
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("method", "target", "match"),
    [
        (b"POST", b"/v1/chat/completions", Match(Route.CHAT, b"/v1/chat/completions", "/v1/chat/completions")),
        (b"POST", b"/v1/completions?a=/b", Match(Route.COMPLETIONS, b"/v1/completions?a=/b", "/v1/completions")),
        (b"GET", b"/v1/models", Match(Route.MODELS, b"/v1/models", "/v1/models")),
        (b"HEAD", b"/health", Match(Route.HEALTH, b"/health", "/health")),
        (b"GET", b"/livez", Match(Route.LIVE, b"/livez", "/livez")),
        (b"GET", b"http://h:80/readyz", Match(Route.READY, b"/readyz", "/readyz")),
        (b"GET", b"https://h/metrics?x=1", Match(Route.METRICS, b"/metrics?x=1", "/metrics")),
        (b"POST", b"/pick", Match(Route.PICK, b"/pick", "/pick")),
        (b"POST", b"/pick/a_-9/done", Match(Route.PICK_DONE, b"/pick/a_-9/done", "/pick/done", "a_-9")),
    ],
)
def test_known_route(method, target, match):
    assert match_route(method, target) == match


@pytest.mark.parametrize(
    "target",
    [b"/", b"*", b"", b"h:1", b"http://h", b"//health", b"/health/", b"/HEALTH", b"/pick/a b/done", b"/pick//done"],
)
def test_unknown_path_is_404(target):
    refusal = match_route(b"GET", target)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (404, "not-found")


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [(b"GET", b"/pick/a/done", b"POST"), (b"HEAD", b"/v1/completions", b"POST"), (b"PUT", b"/health", b"GET, HEAD")],
)
def test_wrong_method_is_405_and_says_what_is_allowed(method, target, allow):
    refusal = match_route(method, target)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, dict(refusal.headers)) == (405, {b"allow": allow})


@given(st.binary(max_size=80))
def test_no_target_raises(target):
    match_route(b"GET", target)


@pytest.mark.parametrize(
    ("method", "target", "headers", "found"),
    [
        (b"POST", b"/v1/messages?a=1", (), Match(Route.INFERENCE, b"/v1/messages?a=1", "/v1/messages")),
        (b"POST", b"*", [(b"x-original-path", b"/x?y")], Match(Route.INFERENCE, b"/x?y", "/x")),
        (b"GET", b"*", [(b"x-forwarded-path", b"/health")], Match(Route.HEALTH, b"/health", "/health")),
        (b"POST", b"/a", [(b"x-original-path", b"/b")], Match(Route.INFERENCE, b"/a", "/a")),
        (b"POST", b"/\xff", (), Match(Route.INFERENCE, b"/\xff", "/ÿ")),
    ],
)
def test_what_is_posted_elsewhere_is_for_a_parser_to_know(method, target, headers, found):
    assert match_route(method, target, headers) == found


@pytest.mark.parametrize(
    ("method", "target"), [(b"POST", b"/pick/"), (b"POST", b"/pick//done"), (b"POST", b"*"), (b"PUT", b"/v1/x")]
)
def test_what_nobody_can_know_is_404(method, target):
    refusal = match_route(method, target)
    assert isinstance(refusal, Refusal)
    assert refusal.status == 404
