"""What an edit changes for others: types, what they declare, and parameters as they stand in the source."""

from hotbay.authoring.developing.changes import Described, changes_between, parameters_in
from hotbay_sdk.protocol import TypeDeclaration

SCORER = TypeDeclaration("a-scorer", ("score",), reads=("endpoint.waiting",))
SOURCE = """
@dataclass(frozen=True)
class Parameters:
    soft_limit: int = 8
    name: str
    def __post_init__(self): ...

@plugin.type("a-scorer", reads=["endpoint.waiting"], parameters=Parameters)
class AScorer(Scorer): ...

@plugin.type("b-scorer", parameters=dict)
class BScorer(Scorer): ...
"""


def test_equal_versions_change_nothing() -> None:
    described = Described({"a-scorer": SCORER}, parameters_in([SOURCE]))
    assert changes_between(described, described) == ()


def test_types_that_come_and_go_are_named_first() -> None:
    before = Described({"a-scorer": SCORER})
    after = Described({"b-scorer": SCORER._replace(type="b-scorer")})
    assert changes_between(before, after) == ("+type b-scorer", "-type a-scorer")


def test_what_a_type_declares_is_told_word_by_word() -> None:
    after = SCORER._replace(reads=("endpoint.running",), points=("filter", "score"), rowwise=True)
    assert changes_between(Described({"a-scorer": SCORER}), Described({"a-scorer": after})) == (
        "a-scorer points +filter",
        "a-scorer reads +endpoint.running -endpoint.waiting",
        "a-scorer rowwise False → True",
    )


def test_parameters_are_the_fields_of_the_dataclass() -> None:
    assert parameters_in([SOURCE]) == {"a-scorer": {"soft_limit": "int = 8", "name": "str"}}


def test_parameters_that_differ_are_told() -> None:
    types = {"a-scorer": SCORER}
    changed = SOURCE.replace("soft_limit: int = 8", "soft_limit: int = 16").replace("name: str", "title: str")
    assert changes_between(Described(types, parameters_in([SOURCE])), Described(types, parameters_in([changed]))) == (
        "a-scorer parameter -name",
        "a-scorer parameter soft_limit: int = 8 → int = 16",
        "a-scorer parameter +title: str",
    )


def test_a_file_that_does_not_parse_has_no_parameters() -> None:
    assert parameters_in(["def (", "\0", SOURCE]).keys() == {"a-scorer"}


def test_decorators_of_other_kinds_are_none_of_types() -> None:
    assert (
        parameters_in(
            [
                "@plugin.type\nclass A: ...\n@type('a', parameters=A)\nclass B: ...\n@p.type(x, parameters=A)\nclass C: ..."
            ]
        )
        == {}
    )
