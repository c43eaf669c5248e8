"""Writes a random model of the llama architecture that real llama.cpp loads: same seed, same bytes.

The vocabulary has one token per byte and six more, so token counts are known without a tokenizer: a prompt has as many
tokens as bytes. Answers are printable ASCII of exactly the length that was asked for: residual dimension 0 carries a
constant that no layer writes to, and the output head uses it to rule every other token out, the end tokens included.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from hotbay.demo.parts import load_part

__all__ = ["SHAPES", "VOCABULARY_SIZE", "ModelShape", "write_model"]

CONTEXT_LENGTH: Final = 32_768
"""Stated in the file; the server's own context setting is what bounds a prompt."""

_SPACE: Final = "▁"
_EXTRA_TOKENS: Final = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", _SPACE)
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_EXTRA_TYPES: Final = (_UNKNOWN, _CONTROL, _CONTROL, _CONTROL, _CONTROL, _NORMAL)
VOCABULARY_SIZE: Final = 256 + len(_EXTRA_TOKENS)

_RULED_OUT: Final = -60.0
"""Logit of a token that must not come: beyond any sampler's reach beside logits of about 1."""

_CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of the network; `width` is a multiple of `heads`, and width/heads is even."""

    layers: int
    width: int
    heads: int
    feed_forward: int


SHAPES: Final = {
    "tiny": ModelShape(layers=1, width=64, heads=4, feed_forward=128),
    "light": ModelShape(layers=2, width=128, heads=4, feed_forward=384),
    "small": ModelShape(layers=4, width=192, heads=6, feed_forward=512),
    "mid": ModelShape(layers=8, width=512, heads=8, feed_forward=1536),
}
"""tiny (0.3 MB) answers at once; light (2 MB) leaves two cores room for all that runs beside three servers of it; small
(7 MB) and mid (110 MB) take long enough over a prompt for a prefix cache to show."""


class _Writer(Protocol):
    """What is used of gguf.GGUFWriter."""

    def add_context_length(self, length: int) -> None: ...
    def add_embedding_length(self, length: int) -> None: ...
    def add_block_count(self, length: int) -> None: ...
    def add_feed_forward_length(self, length: int) -> None: ...
    def add_head_count(self, count: int) -> None: ...
    def add_head_count_kv(self, count: int) -> None: ...
    def add_layer_norm_rms_eps(self, value: float) -> None: ...
    def add_rope_dimension_count(self, count: int) -> None: ...
    def add_vocab_size(self, size: int) -> None: ...
    def add_name(self, name: str) -> None: ...
    def add_tokenizer_model(self, model: str) -> None: ...
    def add_token_list(self, tokens: list[str]) -> None: ...
    def add_token_scores(self, scores: list[float]) -> None: ...
    def add_token_types(self, types: list[int]) -> None: ...
    def add_bos_token_id(self, id: int) -> None: ...  # noqa: A002  # the library's own parameter name
    def add_eos_token_id(self, id: int) -> None: ...  # noqa: A002
    def add_eot_token_id(self, id: int) -> None: ...  # noqa: A002
    def add_unk_token_id(self, id: int) -> None: ...  # noqa: A002
    def add_add_bos_token(self, value: bool) -> None: ...
    def add_add_space_prefix(self, value: bool) -> None: ...
    def add_chat_template(self, value: str) -> None: ...
    def add_tensor(self, name: str, tensor: Array) -> None: ...
    def write_header_to_file(self) -> None: ...
    def write_kv_data_to_file(self) -> None: ...
    def write_tensors_to_file(self) -> None: ...
    def close(self) -> None: ...


def write_model(path: Path, shape: ModelShape, *, seed: int = 0) -> None:
    """Write the model to `path`, whole or not at all.

    Raises:
        InputError: the package `gguf` is not installed.
    """
    part = path.with_name(path.name + ".part")
    writer: _Writer = load_part("gguf").GGUFWriter(str(part), "llama")
    _describe(writer, shape)
    for name, tensor in _tensors(shape, np.random.default_rng(seed)):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def _describe(writer: _Writer, shape: ModelShape) -> None:
    writer.add_name("hotbay-demo")
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_vocab_size(VOCABULARY_SIZE)
    tokens = [*_EXTRA_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([*_EXTRA_TYPES, *[_BYTE] * 256])
    writer.add_unk_token_id(_EXTRA_TOKENS.index("<unk>"))
    writer.add_bos_token_id(_EXTRA_TOKENS.index("<s>"))
    writer.add_eos_token_id(_EXTRA_TOKENS.index("</s>"))
    writer.add_eot_token_id(_EXTRA_TOKENS.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(_CHAT_TEMPLATE)


def _tensors(shape: ModelShape, rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    width, ff = shape.width, shape.feed_forward

    def matrix(rows: int, columns: int) -> Array:
        weights = rng.standard_normal((rows, columns), np.float32)
        weights /= np.float32(np.sqrt(columns))
        return weights

    def into_residual(columns: int) -> Array:
        weights = matrix(width, columns)
        weights[0] = 0.0
        return weights

    embedding = rng.standard_normal((VOCABULARY_SIZE, width), np.float32)
    embedding[:, 0] = 1.0
    yield "token_embd.weight", embedding
    ones = np.ones(width, np.float32)
    for layer in range(shape.layers):
        prefix = f"blk.{layer}."
        yield prefix + "attn_norm.weight", ones
        yield prefix + "attn_q.weight", matrix(width, width)
        yield prefix + "attn_k.weight", matrix(width, width)
        yield prefix + "attn_v.weight", matrix(width, width)
        yield prefix + "attn_output.weight", into_residual(width)
        yield prefix + "ffn_norm.weight", ones
        yield prefix + "ffn_gate.weight", matrix(ff, width)
        yield prefix + "ffn_up.weight", matrix(ff, width)
        yield prefix + "ffn_down.weight", into_residual(ff)
    yield "output_norm.weight", ones
    head = matrix(VOCABULARY_SIZE, width)
    head[:, 0] = _RULED_OUT
    head[_printable_tokens(), 0] = 0.0
    yield "output.weight", head


def _printable_tokens() -> list[int]:
    first_byte = len(_EXTRA_TOKENS)
    return [_EXTRA_TOKENS.index(_SPACE), *(first_byte + byte for byte in range(0x21, 0x7F))]
