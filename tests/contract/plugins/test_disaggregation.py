"""The package `disaggregation`: which stages run, in both orders, and the headers that say where."""

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hotbay_disaggregation import plugin
from hotbay_disaggregation.deciders import too_little_cached
from hotbay_disaggregation.handlers import RANK_HEADER
from hotbay_disaggregation.header_setters import ENCODE_HEADER, PREFILL_HEADER
from hotbay_disaggregation.parameters import DisaggParameters, StageOrder, stage_order
from hotbay_disaggregation.stages import DECISIONS, decision_of, merged, next_profile
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginCallError, PluginHarness
from hypothesis import given
from hypothesis import strategies as st

HANDLER = "disagg-profile-handler"
PROFILES = ("decode", "prefill", "encode")
MATCHED = "PrefixCacheMatchInfo.matched_blocks"
BLOCK = "PrefixCacheMatchInfo.block_size_tokens/request"
MEDIA = "EncoderCacheMatchInfo.total_size/request"
PODS = {
    "d": {"address": "10.0.0.1:8000"},
    "p": {"address": "10.0.0.2:8000"},
    "q": {"address": "[::1]:8001"},
}


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure("always", "always-disagg-pd-decider")
        made.configure("media", "always-disagg-multimodal-decider")
        made.configure("prefix", "prefix-based-pd-decider", {"nonCachedTokens": 5})
        yield made


def handler(harness: PluginHarness, prefill: str = "", encode: str = "", **parameters: object) -> None:
    harness.configure("handler", HANDLER, {"deciders": {"prefill": prefill, "encode": encode}, **parameters})


def run(
    harness: PluginHarness,
    profiles: Sequence[str] = PROFILES,
    *,
    fails: Sequence[str] = (),
    tokens: int = 10,
    cached: float = 0.0,
    media: float = 0.0,
) -> tuple[list[str], dict[str, list[str] | None]]:
    """Stages that a handler runs, in their order, each of which picks one endpoint, and their results."""
    picks = {"decode": ["d"], "prefill": ["p"], "encode": ["q", "p"]}
    results: dict[str, list[str] | None] = {}
    ran: list[str] = []
    data = {MATCHED: [cached, 0, 0], BLOCK: [1], MEDIA: [media]}
    while True:
        chosen = harness.profile_pick("handler", profiles, results, {"tokens_estimate": tokens}, PODS, data=data)
        if not chosen:
            return ran, results
        (name,) = chosen
        ran.append(name)
        results[name] = None if name in fails else picks[name]


# -- deciders --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("non_cached", "cached", "wanted"), [(5, 5, True), (5, 8, False), (0, 0, False)], ids=["5", "8", "never"]
)
def test_es15_prefill_runs_for_a_prompt_of_which_too_little_is_cached(
    harness: PluginHarness, non_cached: int, cached: float, wanted: bool
) -> None:
    harness.configure("prefix", "prefix-based-pd-decider", {"nonCachedTokens": non_cached})
    handler(harness, "prefix")
    assert ("prefill" in run(harness, tokens=10, cached=cached)[0]) is wanted


@pytest.mark.parametrize(
    ("tokens", "cached", "uncached", "prompt", "wanted"),
    [
        (10, 0, 10, 0, True),
        (10, 0, 11, 0, False),
        (10, 0, 5, 10, True),
        (10, 0, 5, 11, False),
        (10, 5, 5, 0, True),
        (10, 6, 5, 0, False),
        (0, 0, 1, 0, False),
        (10, float("nan"), 5, 0, False),
        (10, 0, 0, 0, False),
    ],
)
def test_too_little_is_cached_from_the_limit_on(
    tokens: int, cached: float, uncached: int, prompt: int, wanted: bool
) -> None:
    assert too_little_cached(tokens, cached, uncached, prompt) is wanted


@given(tokens=st.integers(0, 100), cached=st.integers(0, 100), uncached=st.integers(0, 100), prompt=st.integers(0, 100))
def test_the_decision_is_the_formula(tokens: int, cached: int, uncached: int, prompt: int) -> None:
    formula = uncached > 0 and tokens >= prompt and tokens - cached >= uncached
    assert too_little_cached(tokens, cached, uncached, prompt) is formula


def test_a_prompt_of_which_nothing_is_known_is_not_disaggregated(harness: PluginHarness) -> None:
    handler(harness, "prefix")
    results = {"decode": ["d"]}
    assert harness.profile_pick("handler", PROFILES, results, {"tokens_estimate": 10}, PODS) == []
    gone = {"decode": ["gone"]}
    data = {MATCHED: [0, 0, 0], BLOCK: [1]}
    assert harness.profile_pick("handler", PROFILES, gone, {"tokens_estimate": 10}, PODS, data=data) == []


@pytest.mark.parametrize(("media", "wanted"), [(0.0, False), (1.0, True), (float("nan"), False)], ids=str)
def test_encode_runs_for_requests_with_media(harness: PluginHarness, media: float, wanted: bool) -> None:
    handler(harness, encode="media")
    assert ("encode" in run(harness, media=media)[0]) is wanted


def test_deciders_count_what_they_were_asked(harness: PluginHarness) -> None:
    handler(harness, "prefix")
    run(harness, cached=5)
    run(harness, cached=8)
    assert harness.dump_state("prefix") == {"asked": 2, "agreed": 1}


def test_a_named_producer_is_asked_for(harness: PluginHarness) -> None:
    parameters = {"nonCachedTokens": 5, "prefixMatchInfoProducerName": "precise"}
    harness.configure("prefix", "prefix-based-pd-decider", parameters)
    handler(harness, "prefix")
    key = "PrefixCacheMatchInfo/precise"
    assert harness.facts("handler").optional == (f"{key}.matched_blocks", f"{key}.block_size_tokens")
    data = {f"{key}.matched_blocks": [0, 0, 0], f"{key}.block_size_tokens/request": [1]}
    request = {"tokens_estimate": 10}
    assert harness.profile_pick("handler", PROFILES, {"decode": ["d"]}, request, PODS, data=data) == ["prefill"]


# -- stages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefill", "encode", "media", "ran"),
    [
        ("", "", 1, ["decode"]),
        ("always", "", 1, ["decode", "prefill"]),
        ("", "media", 1, ["decode", "encode"]),
        ("always", "media", 1, ["decode", "encode", "prefill"]),
        ("always", "media", 0, ["decode", "prefill"]),
    ],
)
def test_decode_runs_first_then_encode_then_prefill(
    harness: PluginHarness, prefill: str, encode: str, media: float, ran: list[str]
) -> None:
    handler(harness, prefill, encode)
    assert run(harness, media=media)[0] == ran


@pytest.mark.parametrize(
    ("profiles", "media", "ran"),
    [
        (("decode",), 1, ["decode"]),
        (("decode", "prefill"), 1, ["prefill", "decode"]),
        (PROFILES, 1, ["prefill", "encode", "decode"]),
        (PROFILES, 0, ["prefill", "decode"]),
    ],
)
def test_prefill_runs_first_where_it_is_asked_for(
    harness: PluginHarness, profiles: Sequence[str], media: float, ran: list[str]
) -> None:
    handler(harness, encode="media", stageOrder="prefill-first")
    assert run(harness, profiles, media=media)[0] == ran


@pytest.mark.parametrize("fails", [("prefill",), ("encode",), ("prefill", "encode")])
@pytest.mark.parametrize("order", list(StageOrder))
def test_a_stage_that_fails_is_left_out_and_not_run_again(
    harness: PluginHarness, fails: Sequence[str], order: StageOrder
) -> None:
    prefill = "always" if order is StageOrder.DECODE_FIRST else ""
    handler(harness, prefill, "media", stageOrder=str(order))
    ran, results = run(harness, media=1, fails=fails)
    assert sorted(ran) == sorted(PROFILES)
    processed = harness.profile_process("handler", results, {}, PODS)
    assert processed is not None
    primary, found = processed
    assert primary == "decode"
    assert set(found) == set(PROFILES) - set(fails)


def test_nothing_runs_after_a_decode_that_failed(harness: PluginHarness) -> None:
    handler(harness, "always", "media")
    ran, results = run(harness, media=1, fails=["decode"])
    assert ran == ["decode"]
    assert harness.profile_process("handler", results, {}, PODS) is None, "no fault: the filters' refusal decides"


@pytest.mark.parametrize("kind", ["disagg-profile-handler", "pd-profile-handler"])
def test_a_prefill_endpoint_alone_is_nothing_to_go_on_with(harness: PluginHarness, kind: str) -> None:
    harness.configure("h", kind, {"deciderPluginName": "always"})
    assert harness.profile_process("h", {"prefill": ["p"], "decode": None}, {"id": "r"}, PODS) is None


def test_a_missing_decode_profile_is_an_error_that_names_what_there_is(harness: PluginHarness) -> None:
    handler(harness, "always")
    with pytest.raises(PluginCallError, match=r"there is no profile 'decode'.* has prefill, other"):
        run(harness, ["prefill", "other"])


def test_profiles_may_have_other_names(harness: PluginHarness) -> None:
    handler(harness, "always", profiles={"decode": "D", "prefill": "P"})
    pick = harness.profile_pick
    assert pick("handler", ["P", "D"], {}, {}, PODS) == ["D"]
    assert pick("handler", ["P", "D"], {"D": ["d"]}, {}, PODS) == ["P"]
    assert pick("handler", ["P", "D"], {"D": ["d"], "P": ["p"]}, {}, PODS) == []
    assert harness.profile_process("handler", {"D": ["d"], "P": ["p"]}, {}, PODS) == ("D", {"D": ["d"], "P": ["p"]})


def test_decisions_are_counted(harness: PluginHarness) -> None:
    handler(harness, "always", "media")
    for media in (0, 1, 1):
        _, results = run(harness, media=media)
        harness.profile_process("handler", results, {}, PODS)
    assert harness.dump_state("handler") == {
        "stage_order": "decode-first",
        "decisions": {"decode-only": 0, "prefill-decode": 1, "encode-decode": 0, "encode-prefill-decode": 2},
    }


@given(
    order=st.sampled_from(list(StageOrder)),
    profiles=st.permutations(PROFILES),
    wants=st.fixed_dictionaries({"prefill": st.booleans(), "encode": st.booleans()}),
    fails=st.sets(st.sampled_from(PROFILES)),
)
def test_every_stage_runs_at_most_once_and_decode_always(
    order: StageOrder, profiles: list[str], wants: Mapping[str, bool], fails: set[str]
) -> None:
    stages = DisaggParameters(stageOrder=order).stages
    results: dict[str, list[str] | None] = {}
    while (name := next_profile(stages, profiles, results, lambda stage, _: wants[stage])) is not None:
        assert name not in results
        results[name] = None if name in fails else [name]
    assert "decode" in results
    found = merged(stages, results)
    if "decode" in fails:
        assert found is None
        return
    assert found is not None
    assert set(found) == set(results) - fails
    assert decision_of(stages, found) in DECISIONS
    runs_prefill = wants["prefill"] or order is StageOrder.PREFILL_FIRST
    assert ("prefill" in results, "encode" in results) == (runs_prefill, wants["encode"])


# -- headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", [HANDLER, "disagg-headers-handler", "prefill-header-handler"])
def test_headers_name_where_the_stages_run(harness: PluginHarness, type_name: str) -> None:
    harness.configure("setter", type_name)
    assert harness.facts("setter").request_headers == (PREFILL_HEADER, ENCODE_HEADER)
    results = {"decode": ["d"], "prefill": ["p", "q"], "encode": ["q", "p"]}
    edits = harness.pre_request("setter", PODS, ["d"], profile="decode", results=results)
    assert edits is not None
    assert edits.request == {PREFILL_HEADER: "10.0.0.2:8000", ENCODE_HEADER: "[::1]:8001,10.0.0.2:8000"}
    assert edits.response == {}


@pytest.mark.parametrize(
    "results", [{"decode": ["d"]}, {"decode": ["d"], "prefill": None, "encode": None}, {"prefill": ["gone"]}]
)
def test_headers_of_a_client_are_taken_away_where_a_stage_did_not_run(
    harness: PluginHarness, results: Mapping[str, Sequence[str] | None]
) -> None:
    handler(harness)
    edits = harness.pre_request("handler", PODS, ["d"], profile="decode", results=results)
    assert edits is not None
    assert edits.request == {PREFILL_HEADER: None, ENCODE_HEADER: None}


@pytest.mark.parametrize("pods", [{"d": {}, "p": {}}, {"d": {"address": "a:1"}, "p": {}}])
def test_an_address_that_is_not_known_sets_nothing(
    harness: PluginHarness, pods: Mapping[str, Mapping[str, str]]
) -> None:
    handler(harness)
    edits = harness.pre_request("handler", pods, ["d"], profile="decode", results={"prefill": ["p"]})
    assert edits is not None
    assert edits.request[PREFILL_HEADER] is None


def test_setters_may_be_told_other_profiles(harness: PluginHarness) -> None:
    harness.configure("setter", "disagg-headers-handler", {"prefillProfile": "P", "encodeProfile": "E"})
    results = {"P": ["p"], "E": ["q"], "prefill": ["d"], "encode": ["d"]}
    edits = harness.pre_request("setter", PODS, ["d"], results=results)
    assert edits is not None
    assert edits.request == {PREFILL_HEADER: "10.0.0.2:8000", ENCODE_HEADER: "[::1]:8001"}


# -- the deprecated handler ------------------------------------------------------------------------


def test_the_old_handler_decodes_and_perhaps_prefills(harness: PluginHarness) -> None:
    harness.configure("handler", "pd-profile-handler", {"deciderPluginName": "prefix"})
    assert run(harness, cached=5)[0] == ["decode", "prefill"]
    assert run(harness, cached=8)[0] == ["decode"]
    results = {"decode": ["d"], "prefill": None}
    assert harness.profile_process("handler", results, {}, PODS) == ("decode", {"decode": ["d"]})
    assert harness.facts("handler").request_headers == ()
    assert harness.pre_request("handler", PODS, ["d"]) is None


def test_a_primary_port_takes_requests_and_a_header_names_the_rank(harness: PluginHarness) -> None:
    pods = {f"d{rank}": {"address": f"10.0.0.1:{8000 + rank}"} for rank in range(3)} | {
        "x": {"address": "10.0.0.9:8001"}
    }
    harness.configure("handler", "pd-profile-handler", {"deciderPluginName": "always", "primaryPort": 8000})
    assert harness.facts("handler").request_headers == (RANK_HEADER,)
    request = {"id": "r1"}
    found = harness.profile_process("handler", {"decode": ["d2", "d1", "x"]}, request, pods)
    assert found == ("decode", {"decode": ["d0", "x"]})
    edits = harness.pre_request("handler", pods, ["d0"], request)
    assert edits is not None
    assert edits.request == {RANK_HEADER: "10.0.0.1:8002"}
    again = harness.pre_request("handler", pods, ["d0"], request)
    assert again is not None
    assert again.request == {RANK_HEADER: None}


# -- parameters ------------------------------------------------------------------------------------


def test_the_flat_form_is_the_nested_one() -> None:
    flat = DisaggParameters(
        decodeProfile="D",
        prefillProfile="P",
        encodeProfile="E",
        prefillDeciderPluginName="p",
        encodeDeciderPluginName="e",
        deciderPluginName="other",
    )
    stages = flat.stages
    assert (stages.profiles.decode, stages.profiles.prefill, stages.profiles.encode) == ("D", "P", "E")
    assert (stages.deciders.prefill, stages.deciders.encode) == ("p", "e")
    assert DisaggParameters(deciderPluginName="p").stages.deciders.prefill == "p"


def test_defaults(harness: PluginHarness) -> None:
    stages = DisaggParameters().stages
    assert stages.order is StageOrder.DECODE_FIRST
    assert (stages.profiles.decode, stages.profiles.prefill, stages.profiles.encode) == PROFILES
    assert (stages.deciders.prefill, stages.deciders.encode) == ("", "")
    harness.configure("handler", HANDLER)
    assert run(harness)[0] == ["decode"]
    harness.configure("prefix-based-pd-decider", "prefix-based-pd-decider")
    harness.configure("handler", "pd-profile-handler")
    assert run(harness)[0] == ["decode"]


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("", "decode-first"),
        ("decode-first", "decode-first"),
        ("Decode_First", "decode-first"),
        ("decode", "decode-first"),
        ("prefillFirst", "prefill-first"),
        ("prefill-first", "prefill-first"),
        ("prefill", "prefill-first"),
    ],
)
def test_the_order_is_read_in_all_its_spellings(text: str, order: str) -> None:
    assert stage_order(text) == order


@pytest.mark.parametrize(
    ("type_name", "parameters", "path"),
    [
        (HANDLER, {"stageOrder": "encode-first"}, "stageOrder"),
        (HANDLER, {"stageOrder": "prefill-first", "deciders": {"prefill": "always"}}, "deciders.prefill"),
        (HANDLER, {"stageOrder": "prefill-first", "deciderPluginName": "always"}, "deciderPluginName"),
        (HANDLER, {"decodeProfile": "D", "profiles": {"prefill": "P"}}, "decodeProfile"),
        (HANDLER, {"deciders": {"encode": "media"}, "encodeDeciderPluginName": "media"}, "encodeDeciderPluginName"),
        (HANDLER, {"deciders": {"prefill": "none"}}, "deciders.prefill"),
        (HANDLER, {"deciders": {"encode": "none"}}, "deciders.encode"),
        (HANDLER, {"prefillDeciderPluginName": "none"}, "prefillDeciderPluginName"),
        (HANDLER, {"deciderPluginName": "none"}, "deciderPluginName"),
        (HANDLER, {"encodeDeciderPluginName": "none"}, "encodeDeciderPluginName"),
        (HANDLER, {"deciders": {"prefill": "setter"}}, "deciders.prefill"),
        (HANDLER, {"profiles": {"decod": "D"}}, "profiles.decod"),
        (HANDLER, {"threshold": 1}, "threshold"),
        ("pd-profile-handler", {}, "deciderPluginName"),
        ("pd-profile-handler", {"deciderPluginName": ""}, "deciderPluginName"),
        ("pd-profile-handler", {"deciderPluginName": "always", "primaryPort": -1}, "primaryPort"),
        ("pd-profile-handler", {"deciderPluginName": "always", "primaryPort": 65536}, "primaryPort"),
        ("prefix-based-pd-decider", {"nonCachedTokens": -1}, "nonCachedTokens"),
        ("prefix-based-pd-decider", {"promptTokens": -1}, "promptTokens"),
        ("prefix-based-pd-decider", {"nonCachedTokens": "5"}, "nonCachedTokens"),
        ("always-disagg-pd-decider", {"x": 1}, "x"),
        ("disagg-headers-handler", {"x": 1}, "x"),
    ],
)
def test_bad_parameters_are_refused_where_they_stand(
    harness: PluginHarness, type_name: str, parameters: dict[str, object], path: str
) -> None:
    harness.configure("setter", "disagg-headers-handler")
    with pytest.raises(ParameterError) as refused:
        harness.configure("bad", type_name, parameters)
    assert refused.value.path == path


@pytest.mark.parametrize("port", [0, 1, 65535])
def test_ports_are_taken_up_to_their_limits(harness: PluginHarness, port: int) -> None:
    harness.configure("handler", "pd-profile-handler", {"deciderPluginName": "always", "primaryPort": port})
    assert harness.facts("handler").request_headers == ((RANK_HEADER,) if port else ())
