"""The package `labels`, filters of labels and roles: what they keep, and what they refuse to be configured with."""

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hotbay_labels import plugin
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

SELECTORS = ("label-selector-filter", "by-label-selector")
ROLES = ("decode", "prefill", "prefill-decode", "both", "encode-prefill-decode", "encode", "encode-prefill", None)

keys = st.sampled_from(["tier", "gpu", "example.com/pool"])
values = st.sampled_from(["", "a", "b", "gold"])
labels = st.dictionaries(keys, values, max_size=3)
requirements = st.fixed_dictionaries(
    {"key": keys, "operator": st.sampled_from(["In", "NotIn"]), "values": st.lists(values, min_size=1, max_size=3)}
) | st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])})


@pytest.fixture(scope="module")
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        for name in ("decode", "prefill", "encode"):
            made.configure(f"{name}-filter", f"{name}-filter")
        yield made


def kept(
    harness: PluginHarness, ref: str, rows: Sequence[Mapping[str, str]], candidates: Sequence[int] | None = None
) -> list[int]:
    endpoints = {f"e{row}": {"labels": given} for row, given in enumerate(rows)}
    members = None if candidates is None else [f"e{row}" for row in candidates]
    (ids,) = harness.keep(ref, endpoints, candidates=members)
    return [int(name[1:]) for name in ids]


def roles(*given: str | None) -> list[dict[str, str]]:
    return [{} if role is None else {"llm-d.ai/role": role} for role in given]


def holds(requirement: Mapping[str, object], labels: Mapping[str, str]) -> bool:
    """One requirement of Kubernetes, for one endpoint."""
    key, operator = requirement["key"], requirement["operator"]
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    found = key in labels and labels[str(key)] in list(requirement["values"])  # type: ignore[call-overload]
    return found if operator == "In" else not found


def test_es12_decode_keeps_those_that_decode_or_say_nothing(harness: PluginHarness) -> None:
    found = kept(harness, "decode-filter", roles(*ROLES))
    assert [ROLES[row] for row in found] == ["decode", "prefill-decode", "both", "encode-prefill-decode", None]


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("prefill-filter", ["prefill", "prefill-decode", "both", "encode-prefill-decode", "encode-prefill"]),
        ("encode-filter", ["encode-prefill-decode", "encode", "encode-prefill"]),
    ],
)
def test_es12_prefill_and_encode_keep_those_that_say_so(harness: PluginHarness, ref: str, expected: list[str]) -> None:
    found = kept(harness, ref, roles(*ROLES))
    assert [ROLES[row] for row in found] == expected


@pytest.mark.parametrize("role", ["Decode", "decode ", "decoder", "prefill,decode"])
def test_roles_match_exactly(harness: PluginHarness, role: str) -> None:
    for ref in ("decode-filter", "prefill-filter", "encode-filter"):
        assert kept(harness, ref, roles(role)) == []


@given(given_roles=st.lists(st.sampled_from([*ROLES, "other"]), min_size=1, max_size=8), data=st.data())
def test_roles_are_kept_as_one_by_one(
    harness: PluginHarness, given_roles: list[str | None], data: st.DataObject
) -> None:
    candidates = sorted(data.draw(st.sets(st.integers(0, len(given_roles) - 1))))
    wanted = {
        "decode-filter": lambda role: role is None or role == "both" or "decode" in role.split("-"),
        "prefill-filter": lambda role: role is not None and (role == "both" or "prefill" in role.split("-")),
        "encode-filter": lambda role: role is not None and "encode" in role.split("-"),
    }
    for ref, keeps in wanted.items():
        expected = [row for row in candidates if keeps(given_roles[row])]
        assert kept(harness, ref, roles(*given_roles), candidates) == expected


@pytest.mark.parametrize("type_name", SELECTORS)
@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"matchLabels": None, "matchExpressions": None}, [0, 1, 2, 3]),
        ({"matchLabels": {}, "matchExpressions": []}, [0, 1, 2, 3]),
        ({"matchLabels": {"tier": "gold"}}, [0, 1]),
        ({"matchLabels": {"tier": "gold", "gpu": "a"}}, [0]),
        ({"matchLabels": {"tier": ""}}, []),
        ({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "lead"]}]}, [0, 1, 2]),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}, [2, 3]),
        ({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, [0, 3]),
        ({"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist", "values": []}]}, [1, 2]),
        (
            {"matchLabels": {"tier": "gold"}, "matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]},
            [1],
        ),
    ],
)
def test_a_selector_keeps_what_it_means(
    harness: PluginHarness, type_name: str, selector: dict[str, object], expected: list[int]
) -> None:
    harness.configure("selector", type_name, selector)
    rows = [{"tier": "gold", "gpu": "a"}, {"tier": "gold"}, {"tier": "lead"}, {"gpu": "b"}]
    assert kept(harness, "selector", rows) == expected
    assert kept(harness, "selector", rows, [0, 3]) == [row for row in expected if row in (0, 3)]
    assert kept(harness, "selector", rows, []) == []


@given(
    rows=st.lists(labels, min_size=1, max_size=6),
    match=st.dictionaries(keys, values, max_size=2),
    expressions=st.lists(requirements, max_size=3),
)
def test_a_selector_keeps_as_one_by_one(
    harness: PluginHarness, rows: list[dict[str, str]], match: dict[str, str], expressions: list[dict[str, object]]
) -> None:
    harness.configure("plain", "label-selector-filter", {"matchLabels": match, "matchExpressions": expressions})
    expected = [
        row
        for row, given in enumerate(rows)
        if match.items() <= given.items() and all(holds(requirement, given) for requirement in expressions)
    ]
    assert kept(harness, "plain", rows) == expected


def test_labels_that_change_are_seen_with_the_next_call(harness: PluginHarness) -> None:
    harness.configure("selector", "label-selector-filter", {"matchLabels": {"tier": "gold"}})
    assert kept(harness, "selector", [{"tier": "gold"}, {}]) == [0]
    assert kept(harness, "selector", [{}, {"tier": "gold"}]) == [1]
    assert kept(harness, "selector", [{}, {}, {"tier": "gold"}]) == [2]


@pytest.mark.parametrize("ref", ["decode-filter", "prefill-filter", "encode-filter"])
def test_no_endpoint_at_all_keeps_nobody(harness: PluginHarness, ref: str) -> None:
    assert harness.keep(ref, {}) == []


@pytest.mark.parametrize("type_name", SELECTORS)
@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"labels": {}}, "labels"),
        ({"matchLabels": ["tier"]}, "matchLabels"),
        ({"matchLabels": {"tier": 1}}, "matchLabels.tier"),
        ({"matchLabels": {"-tier": "a"}}, "matchLabels.-tier"),
        ({"matchLabels": {"": "a"}}, "matchLabels."),
        ({"matchLabels": {"/tier": "a"}}, "matchLabels./tier"),
        ({"matchLabels": {"Example.com/tier": "a"}}, "matchLabels.Example.com/tier"),
        ({"matchLabels": {"tier": "a b"}}, "matchLabels.tier"),
        ({"matchExpressions": [{"operator": "Exists"}]}, "matchExpressions[0].key"),
        ({"matchExpressions": [{"key": "tier"}]}, "matchExpressions[0].operator"),
        ({"matchExpressions": [{"key": "tier", "operator": "in", "values": ["a"]}]}, "matchExpressions[0].operator"),
        ({"matchExpressions": [{"key": "tier", "operator": "In"}]}, "matchExpressions[0].values"),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": []}]}, "matchExpressions[0].values"),
        (
            {"matchExpressions": [{"key": "tier", "operator": "Exists", "values": ["a"]}]},
            "matchExpressions[0].values",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "a/b/c", "operator": "Exists"}]},
            "matchExpressions[1].key",
        ),
        (
            {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b_"]}]},
            "matchExpressions[0].values[1]",
        ),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "vals": []}]}, "matchExpressions[0].vals"),
    ],
)
def test_a_selector_is_refused_as_kubernetes_would(
    harness: PluginHarness, type_name: str, parameters: dict[str, object], path: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", type_name, parameters)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("key", "value", "is_right"),
    [
        ("k" * 63, "v" * 63, True),
        ("k" * 64, "v", False),
        ("k", "v" * 64, False),
        ("p" * 253 + "/k", "v", True),
        ("p" * 254 + "/k", "v", False),
    ],
    ids=["longest name and value", "name too long", "value too long", "longest prefix", "prefix too long"],
)
def test_keys_and_values_of_labels_have_bounds(harness: PluginHarness, key: str, value: str, is_right: bool) -> None:
    if is_right:
        harness.configure("x", "label-selector-filter", {"matchLabels": {key: value}})
        return
    with pytest.raises(ParameterError):
        harness.configure("x", "label-selector-filter", {"matchLabels": {key: value}})


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"label": "tier", "validValues": ["gold", "lead"]}, [0, 1]),
        ({"label": "tier", "validValues": ["gold"], "allowsNoLabel": True}, [0, 3]),
        ({"label": "tier", "allowsNoLabel": True}, [3]),
        ({"label": "tier", "validValues": [""]}, [2]),
    ],
)
def test_by_label_keeps_values_and_perhaps_those_without(
    harness: PluginHarness, parameters: dict[str, object], expected: list[int]
) -> None:
    harness.configure("by-label", "by-label", parameters)
    rows = [{"tier": "gold"}, {"tier": "lead"}, {"tier": ""}, {"other": "gold"}]
    assert kept(harness, "by-label", rows) == expected
    assert kept(harness, "by-label", rows, [1, 2]) == [row for row in expected if row in (1, 2)]


@given(
    rows=st.lists(labels, min_size=1, max_size=6), valid=st.lists(values, min_size=1, max_size=3), absent=st.booleans()
)
def test_by_label_keeps_as_one_by_one(
    harness: PluginHarness, rows: list[dict[str, str]], valid: list[str], absent: bool
) -> None:
    harness.configure("plain", "by-label", {"label": "tier", "validValues": valid, "allowsNoLabel": absent})
    expected = [row for row, given in enumerate(rows) if (given["tier"] in valid if "tier" in given else absent)]
    assert kept(harness, "plain", rows) == expected


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({}, "label"),
        ({"label": "", "validValues": ["a"]}, "label"),
        ({"label": "tier"}, "validValues"),
        ({"label": "tier", "validValues": [], "allowsNoLabel": False}, "validValues"),
        ({"label": "tier", "validValues": "a"}, "validValues"),
        ({"label": "tier", "validValues": [1]}, "validValues[0]"),
        ({"label": "tier", "allowsNoLabel": "yes"}, "allowsNoLabel"),
        ({"label": "tier", "values": ["a"]}, "values"),
    ],
)
def test_by_label_is_read_strictly(harness: PluginHarness, parameters: dict[str, object], path: str) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", "by-label", parameters)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("type_name", "parameters", "said"),
    [
        ("by-label", {"label": "tier", "allowsNoLabel": True}, "label-selector-filter"),
        ("by-label-selector", {}, "label-selector-filter"),
        ("label-selector-filter", {}, ""),
    ],
)
def test_old_types_say_what_has_come_after_them(
    harness: PluginHarness, type_name: str, parameters: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.configure("old", type_name, parameters)
    found = capsys.readouterr().err
    assert (said in found) if said else (found == "")


def test_those_that_choose_by_kind_say_that_waiting_does_not_help() -> None:
    drained = {declaration.type: declaration.drained for declaration in plugin.declarations}
    kinds = {*SELECTORS, "by-label", "decode-filter", "prefill-filter", "encode-filter", "context-length-aware"}
    assert {name for name, means in drained.items() if means == "ineligible"} == kinds
