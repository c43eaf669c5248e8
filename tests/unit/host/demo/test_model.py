"""The generated model and the loading of the demo's parts."""

from pathlib import Path

import pytest
from hotbay.demo.model import SHAPES, VOCABULARY_SIZE, write_model
from hotbay.demo.parts import load_part
from hotbay.errors import InputError

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_model(tmp_path / name, SHAPES["tiny"], seed=seed)
    first, same, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == same
    assert first != other
    assert len(first) < 320_000


def test_the_file_describes_a_byte_vocabulary_and_no_part_is_left_behind(tmp_path: Path) -> None:
    write_model(tmp_path / "tiny.gguf", SHAPES["tiny"])
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.gguf"]
    reader = gguf.GGUFReader(tmp_path / "tiny.gguf")
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    assert len(tokens) == VOCABULARY_SIZE
    assert tokens[-256:] == [f"<0x{byte:02X}>" for byte in range(256)]
    shapes = {tensor.name: tuple(tensor.shape) for tensor in reader.tensors}
    assert shapes["output.weight"] == (SHAPES["tiny"].width, VOCABULARY_SIZE)


def test_a_missing_part_is_an_error_that_says_what_to_install() -> None:
    with pytest.raises(InputError, match="needs the Python package hotbay_no_such_part") as caught:
        load_part("hotbay_no_such_part")
    assert "pip install" in caught.value.hint
    assert "xllamacpp==" in caught.value.hint
