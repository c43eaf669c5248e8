"""The page about requests says what the code does."""

import re
from pathlib import Path

from hotbay.config.picker_config import load_picker_config
from hotbay.gateway.head import DESTINATION, HOP_BY_HOP
from hotbay.gateway.header_edits import is_refused
from hotbay.gateway.inference import parse_inference
from hotbay.gateway.parsers.form import ModelName
from hotbay.gateway.parsers.table import BUILTIN_PARSERS, DEFAULT_PARSERS, ParserTable
from hotbay.gateway.request_reader import WireRequest
from hotbay.gateway.usage import TAIL_BYTES
from hotbay.models.documents import read_models
from hotbay.observe.metrics import Metrics
from hotbay.scheduling.registry import BUILTIN_PARSERS as REGISTERED
from hotbay_sdk.protocol.verdicts import RESERVED_HEADERS

PAGE = (Path(__file__).parents[2] / "docs" / "requests.md").read_text()


def section(title: str) -> str:
    found = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def rows(title: str) -> list[list[str]]:
    lines = re.findall(r"^\| (.*) \|$", section(title), re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_parsers_and_their_claims_are_those_of_the_code():
    told: dict[str, dict[str, str]] = {}
    name = ""
    for type_name, paths, model, _ in rows("Who reads the body")[1:]:
        name = type_name.strip("`") or name
        for path in re.findall(r"`([^`]+)`", paths):
            told.setdefault(name, {})[path] = model
        told.setdefault(name, {})
    made = {
        parser: {
            claim: "optional" if form.model is ModelName.OPTIONAL else "required"
            for claim, form in forms.items()
            if claim
        }
        for parser, forms in BUILTIN_PARSERS.items()
    }
    assert told == made
    assert [name for _, name in DEFAULT_PARSERS] == list(told)
    assert set(BUILTIN_PARSERS) == set(REGISTERED)


def test_examples_are_read():
    picker, models = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [entry.ref for entry in load_picker_config(picker, file="example").parsers] == [
        "openai-parser",
        "anthropic-parser",
    ]
    found = read_models(models, file="example")
    assert (len(found.rewrites[0].rules), found.objectives[0].priority) == (2, 10)


def test_refused_headers_are_those_of_the_page():
    told = re.search(r"Refused, and counted.*?are those(.*?)and values", section("What is sent on"), re.DOTALL)
    assert told is not None
    names = re.findall(r"`([^`]+)`", told[1])
    assert len(names) == 12
    assert all(is_refused(name.encode()) for name in [*names, "connection", "te", "upgrade", DESTINATION.decode()])
    assert not is_refused(b"x-prefiller-host-port")
    assert all(is_refused(name.encode()) for name in RESERVED_HEADERS)
    assert {*names, DESTINATION.decode(), *(name.decode() for name in HOP_BY_HOP)} <= RESERVED_HEADERS, (
        "told at configure"
    )


def test_metrics_and_bounds_are_those_of_the_page():
    families = {f"{family.name}_total" for family in Metrics().families()}
    named = set(re.findall(r"`(hotbay_[a-z_]+)", PAGE))
    assert named <= families
    assert f"{TAIL_BYTES // 1024} KiB" in PAGE


def test_codes_of_bodies_are_those_that_are_answered():
    def code(path: str, body: bytes) -> str:
        wire = WireRequest(b"POST", b"/", False, (), body, keep_alive=True, has_framing=True)
        claimed = ParserTable().find(path)
        assert claimed is not None
        assert claimed.form is not None
        made = parse_inference(wire, path, "r", claimed.form)
        return getattr(made, "code", "")

    answered = {
        code("/v1/completions", b"{"),
        code("/v1/completions", b"{}"),
        code("/v1/completions", b'{"model":"m"}'),
        code("/v1/chat/completions", b'{"model":"m"}'),
        code("/v1/embeddings", b'{"model":"m"}'),
        code("/v1/completions", b'{"model":"m","prompt":%b}' % (b"[" * 17 + b"]" * 17)),
        code("/v1/completions", b"[" * (1 << 19)),
        code("/v1/completions", b'{"model":"m","prompt":[%b]}' % b",".join([b'""'] * 4097)),
    }
    told = re.search(r"code that says why:(.*?)\n$", section("Who reads the body"), re.DOTALL)
    assert told is not None
    assert set(re.findall(r"`([^`]+)`", told[1])) == answered
