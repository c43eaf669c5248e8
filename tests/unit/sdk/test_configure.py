"""`configure`: all-or-nothing, per-handle errors with paths, drop and close."""

from dataclasses import dataclass

import pytest
from hotbay_sdk import Context, ParameterError, Plugin, Scorer
from hotbay_sdk._dispatch import Dispatcher
from hotbay_sdk.protocol import CallError, ErrorCode, Method

GENERATION = 3
closed: list[str] = []


@dataclass(frozen=True)
class Params:
    weight: float = 1.0


def parse(raw):
    if "size" not in raw:
        raise ParameterError("size", "missing")
    return raw["size"]


plugin = Plugin("test")


@plugin.type("plain", parameters=Params)
class Plain(Scorer):
    def __init__(self, context: Context, parameters: Params) -> None:
        super().__init__(context, parameters)

    def score(self, request, endpoint):
        return self.parameters.weight

    def close(self):
        closed.append(self.context.name)
        raise RuntimeError("close fails and nobody minds")


@plugin.type("parsed", parameters=parse)
class Parsed(Scorer):
    def score(self, request, endpoint):
        return 1.0


@plugin.type("none")
class Nothing(Scorer):
    def __init__(self, context: Context) -> None:
        self.draws = [context.random.random() for _ in range(3)]

    def score(self, request, endpoint):
        return 1.0


@plugin.type("raises")
class Raises(Scorer):
    def __init__(self, context: Context) -> None:
        raise OSError("no disk")

    def score(self, request, endpoint):
        return 1.0


@plugin.type("hashing", reads=["request.prompt_hashes"], parameters=lambda raw: raw.get("block"))
class Hashing(Scorer):
    def __init__(self, context: Context, parameters: object) -> None:
        self.block_tokens = parameters

    def score(self, request, endpoint):
        return len(request.prompt_hashes)


@pytest.fixture
def dispatcher():
    closed.clear()
    made = Dispatcher(generation=GENERATION, seed=11)
    made.provide(plugin)
    yield made
    made.close()


def entry(number, type_name, parameters=None, name=""):
    return {"handle": [GENERATION, number], "name": name or f"ref{number}", "type": type_name, "parameters": parameters}


def configure(dispatcher, *create, drop=()):
    wanted = {"create": list(create), "drop": [[GENERATION, n] for n in drop]}
    return dispatcher.control_call(Method.CONFIGURE, [wanted])


def test_created_instances_are_listed(dispatcher):
    result = configure(dispatcher, entry(1, "plain", {"weight": 2}), entry(2, "hashing", {"block": 64}))
    assert result == {"instances": {"1": {"block_tokens": None}, "2": {"block_tokens": 64}}, "errors": []}


@pytest.mark.parametrize(
    ("made", "path", "text"),
    [
        (("plain", {"wieght": 1}), "wieght", "did you mean weight"),
        (("plain", {"weight": "x"}), "weight", "expected a number"),
        (("plain", [1]), "", "parameters are a map"),
        (("parsed", {}), "size", "missing"),
        (("none", {"x": 1}), "x", "takes no parameters"),
        (("raises", None), "", "OSError: no disk"),
        (("nowhere", None), "", "has no type 'nowhere'; it has plain, parsed"),
        (("hashing", {}), "", "need an attribute block_tokens"),
        (("hashing", {"block": 0}), "", "whole number above 0"),
        (("hashing", {"block": True}), "", "whole number above 0"),
    ],
)
def test_refused_ref_is_reported_by_handle_and_path(dispatcher, made, path, text):
    result = configure(dispatcher, entry(1, *made))
    (error,) = result["errors"]
    assert result["instances"] == {}
    assert (error["handle"], error["path"]) == ([GENERATION, 1], path)
    assert text in error["message"]


def test_all_errors_come_at_once(dispatcher):
    result = configure(dispatcher, entry(1, "raises"), entry(2, "plain"), entry(3, "nowhere"))
    assert [error["handle"][1] for error in result["errors"]] == [1, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        {"name": "r", "type": "plain"},
        {"handle": [GENERATION + 1, 5], "name": "r", "type": "plain"},
        {"handle": [GENERATION, 5]},
    ],
    ids=["no-map", "no-handle", "other-generation", "no-name"],
)
def test_an_entry_of_another_form_is_refused_before_anything_is_made(dispatcher, wrong):
    before = entry(1, "plain", name="before")
    assert isinstance(configure(dispatcher, before, wrong), CallError)
    assert dispatcher._instances.object_of("before") is None, "nothing is left of it"
    assert configure(dispatcher, before)["errors"] == []


def test_one_error_changes_nothing_and_closes_what_was_made(dispatcher):
    configure(dispatcher, entry(1, "plain", name="old"))
    configure(dispatcher, entry(2, "plain", name="new"), entry(3, "raises"), drop=[1])
    assert closed == ["new"]
    taken = configure(dispatcher, entry(1, "plain"))
    assert "already in use" in taken["errors"][0]["message"]
    assert configure(dispatcher, entry(2, "plain"))["errors"] == []


def test_drop_closes_and_frees_the_handle(dispatcher):
    configure(dispatcher, entry(1, "plain", name="old"))
    assert configure(dispatcher, entry(1, "plain", name="new"), drop=[1])["errors"] == []
    assert closed == ["old"]
    configure(dispatcher, drop=[1, 1, 99])
    assert closed == ["old", "new"]


def test_close_of_the_process_closes_every_instance(dispatcher):
    configure(dispatcher, entry(1, "plain", name="a"), entry(2, "plain", name="b"))
    dispatcher.close()
    assert closed == ["a", "b"]


def test_handle_of_another_generation_is_stale(dispatcher):
    wanted = {"create": [{**entry(1, "plain"), "handle": [GENERATION + 1, 1]}], "drop": []}
    error = dispatcher.control_call(Method.CONFIGURE, [wanted])
    assert isinstance(error, CallError)
    assert error.code is ErrorCode.STALE_HANDLE


def test_random_is_the_same_for_the_same_seed_and_ref(dispatcher):
    configure(dispatcher, entry(1, "none", name="x"), entry(2, "none", name="y"), entry(3, "none", name="x"))
    first, other, again = (instance.object.draws for instance in dispatcher._instances.all())
    assert first == again
    assert first != other
