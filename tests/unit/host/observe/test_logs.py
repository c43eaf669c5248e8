"""Log lines stay one line each, whatever stands in them."""

import json
import logging

import pytest
from hotbay.observe.logs import ACCESS_LOGGER, JsonFormatter, TextFormatter, set_up_logging

HOSTILE = "id\nforged line\r\x1b[31m\x00\x7f\x85\u2028\u2029"


def record(message, *arguments, **fields):
    made = logging.LogRecord("hotbay.a", logging.INFO, __file__, 1, message, arguments, None)
    vars(made).update(fields)
    return made


@pytest.mark.parametrize("made", [record("%s", HOSTILE), record("x", field=HOSTILE)], ids=["message", "field"])
def test_f22_text_is_one_line_without_control_characters(made):
    line = TextFormatter().format(made)
    assert line.isprintable()
    assert r"id\x0aforged line\x0d\x1b[31m\x00\x7f\x85\u2028\u2029" in line


@pytest.mark.parametrize("value", ["\udcff.yaml", 1 << 70, HOSTILE, float("nan"), {1: "a"}, object()])
def test_json_takes_every_value(value):
    made = json.loads(JsonFormatter().format(record("found %s", value, field=value)))
    assert made["msg"] == f"found {value}"
    assert "field" in made
    assert "\n" not in JsonFormatter().format(record("%s", value))


def test_traceback_follows_the_line():
    try:
        raise ValueError("x")
    except ValueError as error:
        made = record("failed", exc_info=None)
        made.exc_info = (type(error), error, error.__traceback__)
    assert "\nTraceback" in TextFormatter().format(made)
    assert "ValueError: x" in json.loads(JsonFormatter().format(made))["traceback"]


def test_lines_of_a_plugins_traceback_are_set_off():
    made = record("ERROR q: boom", traceback="  File x\n12:00:00.000 error   app: forged\x1b[2J", plugin="p#1")
    head, *below = TextFormatter().format(made).split("\n")
    assert head.endswith("ERROR q: boom plugin=p#1")
    assert below == ["    |   File x", r"    | 12:00:00.000 error   app: forged\x1b[2J"]
    assert json.loads(JsonFormatter().format(made))["traceback"].startswith("  File x\n")


def test_field_that_the_message_says_is_not_said_again():
    made = record("failed plugin=%s code=%s: it broke", "p", "TRIAL_FAILED", plugin="p", code="TRIAL_FAILED", rev=3)
    assert TextFormatter().format(made).endswith(": failed plugin=p code=TRIAL_FAILED: it broke rev=3")
    made = record("failed code=%s", "TRIAL_FAILED_2", code="TRIAL_FAILED")
    assert TextFormatter().format(made).endswith("code=TRIAL_FAILED_2 code=TRIAL_FAILED")


def test_event_that_begins_the_message_is_not_said_again():
    made = record("isolation_none: NO ISOLATION", event="isolation_none")
    assert TextFormatter().format(made).endswith(": isolation_none: NO ISOLATION")


@pytest.fixture
def kept_logging():
    root, access = logging.getLogger(), logging.getLogger(ACCESS_LOGGER)
    before = root.handlers[:], root.level, access.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    access.setLevel(before[2])


@pytest.mark.usefixtures("kept_logging")
@pytest.mark.parametrize("access", [True, False])
def test_request_lines_can_be_left_out(access, capsys):
    set_up_logging("info", "text", access=access)
    logging.getLogger(ACCESS_LOGGER).info("request id=1")
    logging.getLogger("hotbay.app").info("ready")
    said = capsys.readouterr().err
    assert "ready" in said
    assert ("request id=1" in said) is access


def test_json_line_has_no_character_that_acts_on_a_terminal():
    """C1 controls and DEL may stand in JSON as they are."""
    record = logging.makeLogRecord({"msg": "a\x9b2J\x7f\x1b", "levelname": "INFO"})
    line = JsonFormatter().format(record)
    assert line.isprintable()
    assert json.loads(line)["msg"] == "a\x9b2J\x7f\x1b"
