"""What instances say of themselves when they are made: taken as it is said, within bounds."""

import pytest
from hotbay.errors import PluginFault
from hotbay.rollout.refs import MAX_BLOCK_TOKENS, RefSpec, instance_facts
from hotbay_sdk.protocol.calls import InstanceFacts

REF = RefSpec("s", "session-scorer", {})


def test_facts_are_taken_as_they_are_said() -> None:
    said = {
        "block_tokens": 64,
        "reads": ["request.headers[x-session]"],
        "consumes": ["A/one.x"],
        "optional": ["B.x"],
        "request_headers": ["x-to"],
        "response_headers": ["x-back"],
    }
    assert instance_facts(REF, said) == InstanceFacts(
        64, ("request.headers[x-session]",), ("A/one.x",), ("B.x",), ("x-to",), ("x-back",)
    )


@pytest.mark.parametrize("said", [None, {}, {"block_tokens": None}], ids=str)
def test_an_instance_that_says_nothing_has_no_facts(said: object) -> None:
    assert instance_facts(REF, said) == InstanceFacts()  # type: ignore[arg-type]  # as it came


@pytest.mark.parametrize(
    ("tokens", "taken"),
    [(1, 1), (MAX_BLOCK_TOKENS, MAX_BLOCK_TOKENS), (MAX_BLOCK_TOKENS + 1, None), (0, None), (-1, None), ("64", None)],
)
def test_size_of_blocks_out_of_range_counts_as_none(tokens: object, taken: int | None) -> None:
    assert instance_facts(REF, {"block_tokens": tokens}).block_tokens == taken  # type: ignore[dict-item]  # as it came


@pytest.mark.parametrize(
    "said",
    ["x", [], {"reads": "endpoint.waiting"}, {"consumes": [7]}, {"optional": [""]}, {"reads": ["x"] * 257}],
    ids=["text", "list", "no-list", "number", "empty", "too-many"],
)
def test_facts_of_another_form_are_a_bad_result_that_names_the_ref(said: object) -> None:
    with pytest.raises(PluginFault) as caught:
        instance_facts(REF, said)  # type: ignore[arg-type]  # as it came
    assert caught.value.code == "BAD_RESULT"
    assert "'s' of type 'session-scorer'" in caught.value.message
    assert caught.value.hint
