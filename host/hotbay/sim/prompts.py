"""What a prompt comes to: its tokens, and the hashes of its blocks. Pure.

There is no tokenizer: a token is four bytes of UTF-8, as the host estimates it, so both sides count the same. A chat
prompt is the host's text of it. The answer follows the prompt in the cache as it will in the next turn's prompt, so a
conversation that goes on finds its past cached, answers included.
"""

from collections.abc import Mapping
from typing import Final

from xxhash import xxh64_intdigest

from hotbay.scheduling import prompts
from hotbay.scheduling.prompts import BYTES_PER_TOKEN

__all__ = ["ANSWER_ROLE", "block_hashes", "prompts_of", "token_count", "token_ids"]

ANSWER_ROLE: Final = b"assistant\0"
"""What stands between a chat's prompt and its answer; not counted as a token of either."""


def prompts_of(payload: Mapping[str, object]) -> list[bytes]:
    """Each prompt of a request's body as bytes, token ids as four each. `messages` are one."""
    return [prompts.prompt_bytes(prompt) for prompt in prompts.openai_prompts(payload)]


def token_count(prompt: bytes) -> int:
    """Tokens of a prompt: the last one has what is left over, and an empty prompt has one, as a start token."""
    return max(1, len(prompt) // BYTES_PER_TOKEN)


def token_ids(prompt: bytes) -> list[int]:
    """A number for each token: its bytes, the first the least."""
    count = token_count(prompt)
    starts = range(0, count * BYTES_PER_TOKEN, BYTES_PER_TOKEN)
    ids = [int.from_bytes(prompt[start : start + BYTES_PER_TOKEN], "little") for start in starts]
    ids[-1] = int.from_bytes(prompt[(count - 1) * BYTES_PER_TOKEN :], "little")
    return ids


def block_hashes(content: bytes, block_size: int, *, adapter: str = "", salt: str = "") -> list[int]:
    """A hash for each full block of `block_size` tokens, each chained to the one before; adapter and salt begin the chain.

    Equal hashes mean equal beginnings, for the same adapter and salt: xxh64 over the block with the hash before as seed.
    """
    size = block_size * BYTES_PER_TOKEN
    link = xxh64_intdigest(f"{len(adapter)} {adapter}{salt}".encode())
    hashes = []
    for start in range(0, len(content) - size + 1, size):
        link = xxh64_intdigest(content[start : start + size], link)
        hashes.append(link)
    return hashes
