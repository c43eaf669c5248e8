"""What is printed as effective reads back as the same configuration."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hotbay.cli.effective import effective_host, effective_picker, print_effective, yaml_lines
from hotbay.config.documents import load_document
from hotbay.config.host_config import load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.config.system_defaults import DEFAULT_PARSERS, complete
from hotbay.config.type_facts import TypeFacts
from hotbay.errors import InputError
from hotbay.scheduling.known_types import BUILTIN_FACTS
from hypothesis import example, given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[4]
HEAD = "apiVersion: hotbay/v1alpha1\nkind: HostConfig\n"
FULL = (
    HEAD
    + """
state_dir: /s
lock: hotbay.lock
hosts: [{platform: python-cp311-linux-x86_64, interpreter: /usr/bin/python3}]
scheduling:
  text: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
endpoints: [{url: "http://[::1]:8000", labels: {a: "yes", "on": "1"}, weight: 0.5, state: cordoned}]
sources:
  - {name: bundled}
  - {name: web, http: "https://h/p", poll: 1m30s, auth: {username: u, password_file: /p}}
packages: [{id: p, pin: 7, start: first-use, idle: 250us, grants: [net]}]
bindings: {queue: {on_failure: neutral, deadline: 50ms}}
swap: {shadow: off, canary: {share: 0.25}, guard: 10s}
limits: {store: 10GiB, fetch_rate: 1KiB}
"""
)


def host(text):
    return load_host_config(text, file="h.yaml", base_directory=Path("/b"), environment={"HOME": "/h"}, is_root=False)


@pytest.mark.parametrize("text", ["", HEAD, FULL])
def test_host_config_reads_back_as_it_was(text):
    config = host(text)
    value = effective_host(config)
    # Two models are equal only if their texts' places are, too.
    assert host("\n".join(yaml_lines(value))).model_dump() == config.model_dump()
    assert host(orjson.dumps(value).decode()).model_dump() == config.model_dump()


def test_units_and_off_are_written_as_people_write_them():
    value = effective_host(host(FULL))
    assert value["swap"]["shadow"] == "off"
    assert value["packages"][0]["idle"] == "0.00025s"
    assert value["limits"]["store"] == "10737418240B"
    assert value["limits"]["header"] == "65536B"
    assert value["listen"]["admin"] == "unix:admin.sock"
    assert "pin" in value["packages"][0]
    assert "isolation" not in value["packages"][0]


PICKERS = [*(ROOT / "manifests").glob("picker-*.yaml"), *(ROOT / "tests" / "data" / "reference_configs").iterdir()]


def facts(name):
    """Of the host's types what is known of them; all others are scorers, but for what the defaults need."""
    points = {"utilization-detector": "saturation", "fcfs-ordering-policy": "ordering"} | {
        "global-strict-fairness-policy": "fairness",
        "static-usage-limit-policy": "usage_limit",
    }
    return BUILTIN_FACTS.get(name, TypeFacts(frozenset({points.get(name, "score")}), "stable"))


@pytest.mark.parametrize("completed", [False, True], ids=["written", "completed"])
@pytest.mark.parametrize("file", sorted(PICKERS), ids=lambda path: path.name)
def test_picker_config_reads_back_as_it_was(file, completed):
    config = load_picker_config(file.read_text(), file=str(file))
    if completed:
        config = complete(config, facts)
    text = "\n".join(yaml_lines(effective_picker(config)))
    again = load_picker_config(text, file="again")
    if config.queues:
        assert again == config
    else:
        # What is ignored is not printed.
        assert replace(again, flow_control=None) == replace(config, flow_control=None)
        assert again.flow_control.saturation_detector == config.flow_control.saturation_detector


def test_picker_is_printed_with_every_default(tmp_path, capsys):
    picker = tmp_path / "p.yaml"
    picker.write_text("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: random-picker}]\n")
    host = tmp_path / "h.yaml"
    host.write_text(HEAD + "state_dir: /s\nsources: []\n")
    print_effective(host, picker, as_json=True)
    value = orjson.loads(capsys.readouterr().out)
    assert value["schedulingProfiles"] == [{"name": "default", "plugins": [{"pluginRef": "random-picker"}]}]
    assert [it["pluginRef"] for it in value["requestHandler"]["parsers"]] == list(DEFAULT_PARSERS)
    assert value["dataLayer"]["sources"] == [
        {"pluginRef": "metrics-data-source", "extractors": [{"pluginRef": "core-metrics-extractor"}]}
    ]
    assert value["featureGates"] == ["flowControl=false", "haPopulateNonLeaderDatastore=true"]
    assert "flowControl" not in value


def test_every_kind_is_told_apart(tmp_path, capsys):
    picker, endpoints = tmp_path / "p.yaml", tmp_path / "e.yaml"
    picker.write_text("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: queue-scorer}]\n")
    endpoints.write_text("endpoints: []\n")
    print_effective(picker, as_json=True)
    assert orjson.loads(capsys.readouterr().out)["kind"] == "EndpointPickerConfig"
    (tmp_path / "h.yaml").write_text(FULL)
    print_effective(tmp_path / "h.yaml", as_json=False)
    assert "kind: HostConfig" in capsys.readouterr().out
    with pytest.raises(InputError, match="is an endpoint file"):
        print_effective(endpoints, as_json=True)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), _VALUES, max_size=4))
@example({"a": "\x85\u2028\u2029"})
def test_any_document_reads_back(value):
    text = "\n".join(yaml_lines(value))
    try:
        document = load_document(text, file="x")
    except InputError as error:
        # Other documents than those of a configuration: the reader refuses control characters and merge keys.
        assert any(problem.code for problem in error.problems)  # noqa: PT017
        return
    assert document.value == value
