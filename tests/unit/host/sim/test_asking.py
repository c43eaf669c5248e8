"""What a request asks for, what it is answered, and with which words it is refused."""

from random import Random

import orjson
import pytest
from hotbay.sim.asking import Asked, read_request
from hotbay.sim.config import SimConfig
from hotbay.sim.failures import Fault
from hotbay.sim.replies import UNASKED_TOKENS
from hotbay.sim.sequences import EngineLimits
from hypothesis import given
from hypothesis import strategies as st

LIMITS = EngineLimits(max_model_len=256, block_size=4)
CONFIG = SimConfig(model="tiny", limits=LIMITS)
ECHO = SimConfig(model="tiny", limits=LIMITS, mode="echo")
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "How are you?"}]}


def read(payload: object, config: SimConfig = CONFIG, *, is_chat: bool | None = None, seed: int = 1) -> Asked | Fault:
    is_chat = isinstance(payload, dict) and "messages" in payload if is_chat is None else is_chat
    body = payload if isinstance(payload, bytes) else orjson.dumps(payload)
    return read_request(body, config, {"l1": "/adapters/l1"}, Random(seed), is_chat=is_chat)


def asked(payload: object, config: SimConfig = CONFIG, **options: int) -> Asked:
    found = read(payload, config, **options)
    assert isinstance(found, Asked), found
    return found


def fault(payload: object, *, is_chat: bool | None = None) -> Fault:
    found = read(payload, is_chat=is_chat)
    assert isinstance(found, Fault), found
    return found


def test_chat_counts_its_messages_as_the_host_does():
    assert asked(CHAT).work.prompt_tokens == len("user\0How are you?\0") // 4


def test_answer_has_as_many_tokens_as_are_asked_for():
    found = asked({"prompt": "x", "max_tokens": 7})
    assert (found.work.output_tokens, len(found.pieces), found.work.stops) == (7, 7, False)
    assert all(len(piece) == 4 for piece in found.pieces)


def test_max_completion_tokens_goes_before_max_tokens():
    assert asked(CHAT | {"max_tokens": 9, "max_completion_tokens": 3}).work.output_tokens == 3


@given(st.integers(0, 1000))
def test_answer_that_nobody_bounds_ends_by_itself(seed):
    found = asked({"prompt": "x"}, seed=seed)
    assert UNASKED_TOKENS[0] <= found.work.output_tokens <= UNASKED_TOKENS[1]
    assert found.work.stops


def test_answer_that_nobody_bounds_ends_with_the_model_at_the_latest():
    found = asked({"prompt": "x" * 4 * 250})
    assert (found.work.output_tokens, found.work.stops) == (6, False)


def test_same_seed_gives_the_same_answer():
    payload = {"prompt": "x", "max_tokens": 40}
    assert asked(payload, seed=3).pieces == asked(payload, seed=3).pieces != asked(payload, seed=4).pieces


def test_echo_repeats_the_last_message_and_stops():
    found = asked(CHAT | {"max_tokens": 20}, ECHO)
    assert ("".join(found.pieces), found.work.output_tokens, found.work.stops) == ("How are you?", 3, True)


@pytest.mark.parametrize(("most", "text", "stops"), [(2, "How are ", False), (3, "How are you?", True)])
def test_echo_is_cut_where_it_is_bounded(most, text, stops):
    found = asked(CHAT | {"max_tokens": most}, ECHO)
    assert ("".join(found.pieces), found.work.stops) == (text, stops)


def test_echo_that_ignores_its_end_begins_again():
    found = asked({"prompt": "abcdefgh", "max_tokens": 5, "ignore_eos": True}, ECHO)
    assert ("".join(found.pieces), found.work.stops) == ("abcdefghabcdefghabcd", False)


@given(st.text(max_size=50))
def test_echo_gives_the_text_back_whatever_its_characters(text):
    assert "".join(asked({"prompt": text}, ECHO).pieces) == (text or " ")


def test_echo_of_parts_is_their_text():
    content = [{"type": "text", "text": "ab"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "cd"}]
    assert "".join(asked({"messages": [{"role": "user", "content": content}]}, ECHO).pieces) == "abcd"


def test_next_turn_begins_with_the_blocks_of_this_one_and_its_answer():
    first = asked(CHAT | {"max_tokens": 10})
    answer = {"role": "assistant", "content": "".join(first.pieces)}
    messages = [*CHAT["messages"], answer, {"role": "user", "content": "And now?"}]
    second = asked({"messages": messages, "max_tokens": 1})
    assert second.work.hashes[: len(first.work.hashes)] == first.work.hashes
    assert len(first.work.hashes) == (len("user\0How are you?\0assistant\0") + 40) // 16


def test_adapter_is_named_as_a_model():
    plain, adapted = asked(CHAT | {"max_tokens": 9}), asked(CHAT | {"model": "l1", "max_tokens": 9})
    assert (plain.work.adapter, adapted.work.adapter, adapted.model) == ("", "l1", "l1")
    assert not set(plain.work.hashes) & set(adapted.work.hashes)


def test_nothing_is_hashed_where_caching_is_off():
    limits = EngineLimits(max_model_len=256, is_caching=False)
    assert asked(CHAT, SimConfig(model="tiny", limits=limits)).work.hashes == ()


def test_served_names_take_the_place_of_the_model():
    config = SimConfig(model="/models/tiny", served_model_names=("a", "b"), limits=LIMITS)
    assert asked({"prompt": "x"}, config).model == "a"
    assert asked({"prompt": "x", "model": "b"}, config).model == "b"
    assert isinstance(read({"prompt": "x", "model": "/models/tiny"}, config), Fault)


@pytest.mark.parametrize(
    ("options", "usage", "always"),
    [
        (None, False, False),
        ({}, False, False),
        ({"include_usage": True}, True, False),
        ({"include_usage": True, "continuous_usage_stats": True}, True, True),
        ({"continuous_usage_stats": True}, False, False),
    ],
)
def test_usage_is_told_as_asked(options, usage, always):
    found = asked(CHAT | {"stream": True, "stream_options": options})
    assert (found.stream, found.tells_usage, found.tells_usage_always) == (True, usage, always)


def test_unknown_model_is_said_as_vllm_says_it():
    found = fault(CHAT | {"model": "no"})
    assert found.status == 404
    assert orjson.loads(found.body()) == {
        "error": {"message": "The model `no` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}
    }


@pytest.mark.parametrize(
    ("payload", "is_chat", "param"),
    [
        (b"{", True, None),
        (b"[]", True, None),
        ({"messages": []}, True, "messages"),
        ({"messages": "x"}, True, "messages"),
        ({"messages": ["x"]}, True, "messages"),
        ({}, True, "messages"),
        ({}, False, "prompt"),
        ({"prompt": {}}, False, "prompt"),
        ({"prompt": "x", "messages": []}, False, "prompt"),
        ({"prompt": []}, False, "prompt"),
        ({"prompt": ["a", "b"]}, False, "prompt"),
        ({"prompt": "x", "n": 2}, False, "n"),
        ({"prompt": "x", "max_tokens": 0}, False, "max_tokens"),
        ({"prompt": "x", "max_tokens": "9"}, False, "max_tokens"),
        ({"prompt": "x", "max_completion_tokens": True}, False, "max_completion_tokens"),
        ({"prompt": "x" * 4 * 255, "max_tokens": 2}, False, "input_tokens"),
        ({"prompt": "x" * 4 * 256}, False, "input_tokens"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_answered_is_refused(payload, is_chat, param):
    found = fault(payload, is_chat=is_chat)
    assert (found.status, found.type, found.param) == (400, "BadRequestError", param)


@pytest.mark.parametrize(
    "payload",
    [
        {"prompt": "x", "n": 1},
        {"prompt": ["a"]},
        {"prompt": [1, 2]},
        {"prompt": [[1, 2]]},
        {"prompt": "x" * 4 * 255, "max_tokens": 1},
        {"prompt": "x" * 4 * 255},
        {"prompt": "x", "model": None},
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_can_be_answered_is_taken(payload):
    assert asked(payload).work.output_tokens >= 1
