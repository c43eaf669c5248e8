"""The prompt as text and as chained block hashes."""

import struct

import orjson
import pytest
from hotbay.scheduling.request import AGENT_ATTRIBUTE, DEFAULT_FLOW, PROMPT_BOUNDARY, InferenceRequest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest


def make(payload, *, model="m", tenant="default", **fields):
    body = orjson.dumps(payload)
    return InferenceRequest("r", model, "/v1/chat/completions", {}, body, payload, tenant=tenant, **fields)


def completion(prompt, **options):
    return make({"prompt": prompt}, **options)


def hashes(request, block_tokens):
    data = request.prompt_hashes(block_tokens)
    return list(struct.unpack(f"<{len(data) // 8}Q", data))


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}, "system\0a\0user\0b\0"),
        ({"messages": [{"role": "assistant", "content": None}]}, "assistant\0\0"),
        ({"messages": [{"content": "x"}, "odd", 7, None]}, "\0x\0\0odd\0\0007\0\0\0"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}]}, "user\0ab\0"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
            'user\0{"type":"image_url","image_url":{"url":"u"}}\0',
        ),
        ({"prompt": "plain"}, "plain"),
        ({"prompt": ["a", "b"]}, "a\0b"),
        ({"prompt": [1, 22, 3]}, "1 22 3"),
        ({"prompt": [[1, 2], [3]]}, "1 2\0003"),
        ({"prompt": [1.5, None, 2]}, "1.5  2"),
        ({"prompt": []}, ""),
        ({}, ""),
    ],
)
def test_prompt_text(payload, text):
    assert make(payload).prompt_text() == text


def test_hashes_are_the_documented_chain():
    text = "abcdefgh" * 3
    seed = xxh64_intdigest(
        struct.pack("<I", 4) + b"acme" + struct.pack("<I", 2) + b"m1" + struct.pack("<I", 0) + struct.pack("<I", 0)
    )
    expected = []
    for start in (0, 8, 16):
        seed = xxh64_intdigest(text[start : start + 8].encode(), seed)
        expected.append(seed)
    assert hashes(completion(text, model="m1", tenant="acme"), 2) == expected


# Golden: a stored index must not change its meaning with a release.
def test_golden_hashes():
    assert completion("0123456789abcdef").prompt_hashes(2).hex() == GOLDEN


GOLDEN = "d8c349f025863759c9a9a3786b704476"


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60), st.integers(1, 4))
def test_common_hashes_are_the_common_full_blocks(common, tail_a, tail_b, block_tokens):
    a, b = (common + tail_a).encode(), (common + tail_b).encode()
    block = block_tokens * 4
    shared = 0
    while (shared + 1) * block <= min(len(a), len(b)) and a[: (shared + 1) * block] == b[: (shared + 1) * block]:
        shared += 1
    hashes_a, hashes_b = (
        hashes(completion(common + tail_a), block_tokens),
        hashes(completion(common + tail_b), block_tokens),
    )
    assert (len(hashes_a), len(hashes_b)) == (len(a) // block, len(b) // block)
    assert hashes_a[:shared] == hashes_b[:shared]
    assert not set(hashes_a[shared:]) & set(hashes_b[shared:])


@pytest.mark.parametrize(("size", "blocks"), [(0, 0), (63, 0), (64, 1), (65, 1), (127, 1), (128, 2)])
def test_only_full_blocks_count(size, blocks):
    assert len(hashes(completion("x" * size), 16)) == blocks


def test_length_is_counted_in_bytes_of_utf_8():
    assert len(hashes(completion("世" * 4), 1)) == 3


def test_tenant_and_model_separate_prompts_without_running_into_each_other():
    prompt = "x" * 64
    sets = [
        hashes(completion(prompt, model=model, tenant=tenant), 16)[0]
        for tenant, model in [("a", "bc"), ("ab", "c"), ("a", "bcd"), ("", "abc")]
    ]
    assert len(set(sets)) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"model": "m1"}, {"model": "m2"}),
        ({"lora": "X"}, {"cache_salt": "X"}),
        ({"cache_salt": "ab", "lora": "c"}, {"cache_salt": "a", "lora": "bc"}),
        ({"model": "ab", "lora": "c"}, {"model": "a", "lora": "bc"}),
        ({"tenant": "t1"}, {"tenant": "t2"}),
        ({"cache_salt": ""}, {"cache_salt": "\0"}),
    ],
    ids=["model", "lora-salt", "salt-lora", "model-lora", "tenant", "no-salt"],
)
def test_s34_prompts_of_others_match_in_no_block(one, other):
    prompt = "x" * 640
    ones, others = (hashes(completion(prompt, **fields), 16) for fields in (one, other))
    assert len(ones) == len(others) == 10
    assert not set(ones) & set(others)
    assert ones == hashes(completion(prompt, **one), 16)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 0), (15, 0), (16, 1), (17, 1)])
@pytest.mark.parametrize("form", ["text", "ids"])
def test_s35_only_a_whole_block_of_a_prompt_counts(tokens, blocks, form):
    prompt = "four" * tokens if form == "text" else list(range(1, tokens + 1))
    request = completion(prompt)
    assert len(hashes(request, 16)) == blocks
    assert request.tokens_estimate == tokens


def test_ids_are_blocks_of_as_many_tokens_as_texts_are():
    ids = hashes(completion([1, 2, 3, 2**32 - 1]), 2)
    assert len(ids) == 2
    seed = xxh64_intdigest(b"".join(struct.pack("<I", len(part)) + part for part in (b"default", b"m", b"", b"")))
    assert ids[0] == xxh64_intdigest(struct.pack("<2I", 1, 2), seed)


@pytest.mark.parametrize("odd", [[1, -1], [1, 2**32], [1, 1.5], [1, "a"], [[1, "a"], [2]]])
def test_what_is_no_token_id_counts_by_its_text(odd):
    request = completion(odd)
    assert all(isinstance(prompt, str) for prompt in request.prompts[:1])
    assert len(request.prompt_hashes(1)) % 8 == 0


def test_ex03_prompts_are_chains_of_their_own_with_a_boundary_between():
    several = hashes(completion(["a" * 8, "short", "b" * 8, "a" * 8]), 1)
    a, b = (hashes(completion(letter * 8), 1) for letter in "ab")
    short = hashes(completion("short"), 1)
    assert several == [*a, PROMPT_BOUNDARY, *short, PROMPT_BOUNDARY, *b, PROMPT_BOUNDARY, *a]
    assert hashes(completion(["a" * 8, "abc", "", "b" * 8]), 1) == [*a, PROMPT_BOUNDARY, *b]
    assert hashes(completion(["abc", "a" * 8, ""]), 1) == a


def test_flow_is_the_headers_the_attributes_or_the_default():
    assert make({}).flow_id == DEFAULT_FLOW
    agent = make({}, attributes={AGENT_ATTRIBUTE: "agent"})
    assert agent.flow_id == "agent"
    assert make({}, fairness_id="team", attributes=agent.attributes).flow_id == "team"


def test_what_is_large_can_be_let_go_of():
    request = make({"prompt": "x" * 640}, cache_salt="s")
    request.prompt_hashes(16)
    request.let_go_of_body()
    assert (request.body, request.payload, request.prompt_text()) == (b"", {}, "")
    assert (request.id, request.size > 640, request.cache_salt) == ("r", True, "s")


def test_target_model_counts_not_the_name_the_client_used():
    request = completion("x" * 64)
    rewritten = InferenceRequest("r", "m", "/", {}, b"", {"prompt": "x" * 64}, target_model="other")
    assert hashes(request, 16) != hashes(rewritten, 16)


def test_text_and_hashes_are_made_once():
    request = completion("x" * 640)
    assert request.prompt_text() is request.prompt_text()
    assert request.prompt_hashes(16) is request.prompt_hashes(16)
    assert request.prompt_hashes(32) is not request.prompt_hashes(16)


@pytest.mark.parametrize("block_tokens", [0, -1])
def test_block_of_no_tokens_is_refused(block_tokens):
    with pytest.raises(ValueError, match="at least 1"):
        completion("x").prompt_hashes(block_tokens)


def test_defaults():
    request = completion("x")
    assert (request.target_model, request.size, request.priority, request.fairness_id) == (
        "m",
        len(request.body),
        0,
        "",
    )
    assert (request.stream, request.tenant) == (False, "default")


def test_prompt_that_no_encoder_takes_is_nobody_s_prefix():
    deep = orjson.loads(b"[" * 300 + b"]" * 300)
    request = InferenceRequest("r", "m", "/", {}, b"", {"prompt": {"a": deep}})
    assert (request.prompt_text(), request.prompt_hashes(1)) == ("", b"")


def test_estimate_and_hashes_that_were_made_outlive_the_body_and_others_are_none():
    request = completion("four" * 40)
    assert request.tokens_estimate == 40
    kept = request.prompt_hashes(16)
    request.let_go_of_body()
    assert (request.tokens_estimate, request.prompt_hashes(16)) == (40, kept)
    assert (request.prompts, request.prompt_text(), request.prompt_hashes(8)) == ((), "", b"")


def test_body_that_is_let_go_of_is_not_read_any_more():
    def read(payload):
        raise AssertionError("there is nothing to read")

    request = completion("x", read=read)
    request.let_go_of_body()
    assert (request.tokens_estimate, request.prompt_hashes(16), request.prompt_text()) == (0, b"", "")


def test_estimate_is_made_once():
    request = completion(["four"] * 3)
    assert request.tokens_estimate == 3
    request._prompts = ("x" * 400,)
    assert request.tokens_estimate == 3
