"""The prompt as text and as chained block hashes."""

import struct

import orjson
import pytest
from hotbay.scheduling.request import InferenceRequest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest


def make(payload, *, model="m", tenant="default"):
    body = orjson.dumps(payload)
    return InferenceRequest("r", model, "/v1/chat/completions", {}, body, payload, tenant=tenant)


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
        ({"prompt": [[1, 2], [3]]}, "[1,2] [3]"),
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
