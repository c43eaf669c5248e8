"""Declarations: what a class may say of itself, and what is refused when it is defined."""

import re

import pytest
from hotbay_sdk import DataProducer, Endpoint, Filter, Picker, Plugin, PreRequest, ProfileHandler, Request, Scorer


class Half(Scorer):
    def score(self, request: Request, endpoint: Endpoint) -> float:
        return 0.5


def test_declarations_name_points_in_order_of_definition():
    plugin = Plugin("p")

    @plugin.type("both", reads=["endpoint.waiting", "request.headers[X-Session]"], rowwise=True)
    class Both(Scorer, Filter, PreRequest):
        def score(self, request, endpoint):
            return 1.0

        def keep_batch(self, requests, endpoints):
            return []

        def pre_request(self, request, picked, endpoints):
            pass

    plugin.type("half")(Half)
    both, half = plugin.declarations
    assert both.points == ("filter", "score", "pre_request")
    assert both.reads == ("endpoint.waiting", "request.headers[x-session]")
    assert both.rowwise
    assert (half.type, half.points, half.concurrency) == ("half", ("score",), 1)


def test_decorator_returns_the_class_unchanged():
    assert Plugin("p").type("half")(Half) is Half


def test_batch_method_is_preferred():
    plugin = Plugin("p")

    @plugin.type("both-forms")
    class BothForms(Half):
        def score_batch(self, requests, endpoints):
            return []

    spec = plugin._find("both-forms")
    assert spec is not None
    assert spec.methods == {"score": ("score_batch",)}


def test_async_methods_are_found():
    plugin = Plugin("p")

    @plugin.type("async")
    class Async(Scorer):
        async def score(self, request, endpoint):
            return 1.0

    spec = plugin._find("async")
    assert spec is not None
    assert spec.async_methods == {"score"}


@pytest.mark.parametrize(
    ("declaration", "text"),
    [
        ({"reads": ["endpoint.wating"]}, "did you mean endpoint.waiting?"),
        ({"reads": ["request.headers[]"]}, "request.headers[NAME]"),
        ({"reads": "endpoint.waiting"}, 'write ["endpoint.waiting"]'),
        ({"consumes": ["Match"]}, "named Key.field"),
        ({"consumes": "Match.blocks"}, 'write ["Match.blocks"]'),
        ({"produces": {"Match.blocks": "row"}}, "a DataProducer, and nothing else"),
        ({"concurrency": 0}, "expected 1 to 64"),
        ({"concurrency": 65}, "expected 1 to 64"),
        ({"state_versions": [0]}, "whole numbers from 1 up"),
    ],
)
def test_bad_declaration_is_refused_with_a_way_out(declaration, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        Plugin("p").type("half", **declaration)(Half)


def test_unknown_scope_is_refused():
    class Producer(DataProducer):
        def produce(self, request, endpoints):
            return {}

    with pytest.raises(ValueError, match='scope \'endpoint\', expected "row", "request" or "text"'):
        Plugin("p").type("producer", produces={"A.b": "endpoint"})(Producer)


def test_producer_without_columns_is_refused():
    class Producer(DataProducer):
        def produce(self, request, endpoints):
            return {}

    with pytest.raises(ValueError, match="produces"):
        Plugin("p").type("producer")(Producer)


def test_type_name_twice_is_refused():
    plugin = Plugin("p")
    plugin.type("half")(Half)
    with pytest.raises(ValueError, match="a name of its own"):
        plugin.type("half")(Half)


def test_class_of_no_point_is_refused():
    with pytest.raises(TypeError, match=r"derives from none of Admitter, .*WatchSource"):
        Plugin("p").type("x")(object)


def test_scorer_without_a_method_is_refused():
    class Empty(Scorer):
        pass

    with pytest.raises(TypeError, match="Empty is a Scorer without score or score_batch"):
        Plugin("p").type("x")(Empty)


def test_profile_handler_needs_both_methods():
    class Handler(ProfileHandler):
        def pick(self, request, profiles, results, endpoints):
            return []

    with pytest.raises(TypeError, match="both pick and process"):
        Plugin("p").type("x")(Handler)


def test_picker_and_profile_handler_cannot_share_a_class():
    class Confused(Picker, ProfileHandler):
        def pick(self, *arguments):
            return []

        def process(self, request, results, endpoints):
            return "", {}

    with pytest.raises(TypeError, match="make them two types"):
        Plugin("p").type("x")(Confused)
