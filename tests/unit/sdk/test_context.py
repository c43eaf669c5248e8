"""The plugin's log: one line a record, whatever the text."""

import pytest
from hotbay_sdk._context import Context, Logger


def test_lines_name_level_and_ref(capsys):
    Logger("queue").warning("%d of %s", 3, "x")
    assert capsys.readouterr().err == "WARNING queue: 3 of x\n"


@pytest.mark.parametrize(("level", "words"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1), ("odd", 3)])
def test_level_hides_what_is_below(capsys, level, words):
    logger = Logger("x", level)
    for write in (logger.debug, logger.info, logger.warning, logger.error):
        write("m")
    assert len(capsys.readouterr().err.splitlines()) == words


def test_text_cannot_forge_a_line(capsys):
    Logger("x").info("a\nERROR y: \x1b[31mred\ud800")
    assert capsys.readouterr().err == "INFO x: a\\nERROR y: \\x1b[31mred\\ud800\n"


def test_long_text_is_cut(capsys):
    Logger("x").info("%s", "y" * 100_000)
    assert len(capsys.readouterr().err) < 17_000


def test_exception_writes_its_frames(capsys):
    logger = Logger("x")
    try:
        raise ValueError("boom")
    except ValueError:
        logger.exception("while testing")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "ERROR x: while testing"
    assert lines[-1] == "    ValueError: boom"
    assert any("test_context.py" in line for line in lines)
    assert all(line.startswith("    ") for line in lines[1:])


class ForgingError(ValueError):
    def __str__(self):
        return "a\nERROR y: forged"


def test_exception_cannot_forge_a_line(capsys):
    logger = Logger("x")
    logger.fault(ForgingError())
    try:
        raise ForgingError
    except ValueError:
        logger.exception("m")
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if not line.startswith("    ")] == [
        "ERROR x: ForgingError: a\\nERROR y: forged",
        "ERROR x: m",
    ]


def test_context_random_is_lazy_and_seeded():
    first, second = Context("n", "t", seed=1), Context("n", "t", seed=2)
    assert first.random is first.random
    assert Context("n", "t", seed=1).random.random() == first.random.random()
    assert second.random.random() != Context("n", "t", seed=1).random.random()
