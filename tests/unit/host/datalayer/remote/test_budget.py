"""How much one ref may have kept: both sides of each bound, and what makes room."""

import pytest
from hotbay.datalayer.attributes import MAX_ATTRIBUTE_BYTES, AttributeValue
from hotbay.datalayer.remote import budget as budget_module
from hotbay.datalayer.remote.budget import MAX_ENDPOINT_BYTES, MAX_REF_BYTES, AttributeBudget, reply_limit
from hotbay.errors import PluginFault
from hotbay_sdk.protocol.messages import CONTROL_FRAME_BYTES
from hypothesis import given
from hypothesis import strategies as st

HEAD = budget_module._NUMBER_BYTES


def full(total: int, name: str = "a") -> dict[str, AttributeValue | None]:
    """One attribute that counts exactly so much."""
    return {name: "x" * (total - 2 * HEAD - len(name))}


def test_one_endpoint_has_its_bound() -> None:
    budget = AttributeBudget(lambda: 0.0)
    budget.take({"e": full(MAX_ENDPOINT_BYTES)})
    with pytest.raises(PluginFault, match="of endpoint 'e' of at most") as refused:
        budget.take({"e": full(HEAD + HEAD + 1, "b")})
    assert (refused.value.code, budget.total_bytes) == ("BAD_RESULT", MAX_ENDPOINT_BYTES)
    budget.take({"e": {"a": None, "b": 1.0}})
    assert budget.total_bytes == 2 * HEAD + 1


def test_all_endpoints_have_their_bound_and_one_that_goes_makes_room() -> None:
    budget = AttributeBudget(lambda: 0.0)
    for number in range(MAX_REF_BYTES // MAX_ENDPOINT_BYTES):
        budget.take({f"e{number}": full(MAX_ENDPOINT_BYTES)})
    assert budget.total_bytes == MAX_REF_BYTES
    with pytest.raises(PluginFault, match="of all endpoints"):
        budget.take({"more": {"a": 1}})
    budget.take({"e0": full(MAX_ENDPOINT_BYTES)})
    budget.forget("e0")
    budget.take({"more": {"a": 1}})


def test_endpoint_that_is_polled_no_more_makes_room_when_there_is_none() -> None:
    now = 0.0
    budget = AttributeBudget(lambda: now, idle_s=10.0)
    count = MAX_REF_BYTES // MAX_ENDPOINT_BYTES
    for number in range(count):
        budget.take({f"e{number}": full(MAX_ENDPOINT_BYTES)})
    now = 9.9
    budget.take({"e0": {}})
    with pytest.raises(PluginFault):
        budget.take({"more": {"a": 1}})
    now = 10.0
    budget.take({"more": {"a": 1}})
    assert "e1" not in budget._entries
    assert "e0" in budget._entries


VALUES = st.one_of(st.none(), st.integers(0, 9), st.text(max_size=5), st.lists(st.binary(max_size=4), max_size=3))


@given(
    st.lists(
        st.dictionaries(st.sampled_from("ef"), st.dictionaries(st.sampled_from("abc"), VALUES)),
        max_size=8,
    )
)
def test_what_counts_is_what_is_kept(taken: list[dict[str, dict[str, AttributeValue | None]]]) -> None:
    budget, kept = AttributeBudget(lambda: 0.0), dict[str, dict[str, AttributeValue | None]]()
    for found in taken:
        budget.take(found)
        for endpoint_id, values in found.items():
            merged = {**kept.get(endpoint_id, {}), **values}
            kept[endpoint_id] = {name: value for name, value in merged.items() if value is not None}
    anew = AttributeBudget(lambda: 0.0)
    anew.take(kept)
    assert budget.total_bytes == anew.total_bytes


def test_reply_is_bounded_by_the_kinds_that_are_declared() -> None:
    assert reply_limit({"a": "f32", "b": "i64"}) < 8192
    assert MAX_ATTRIBUTE_BYTES < reply_limit({"a": "value"}) < MAX_ATTRIBUTE_BYTES + 8192
    assert reply_limit({f"v{n}": "value" for n in range(8)}) == CONTROL_FRAME_BYTES
