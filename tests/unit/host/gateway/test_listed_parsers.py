"""The parsers that a configuration lists, those of packages among the host's own."""

from types import SimpleNamespace

import pytest
from hotbay.config.picker_config import load_picker_config
from hotbay.gateway.parsers.table import DEFAULT_PARSERS, ParserTable
from hotbay.scheduling.listed_parsers import ListedParsers

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


class FakeRouter:
    """Knows parsers of packages, by plan."""

    def __init__(self, *claims):
        self.plan = SimpleNamespace(claims=claims)

    @property
    def parsers(self):
        return list(self.plan.claims)


def picker(text=""):
    return load_picker_config(HEAD + text, file="picker.yaml")


def test_without_a_list_they_are_the_default_ones_however_many_packages_have_some():
    assert ListedParsers(FakeRouter(("/x", "mine")), picker()).parsers == DEFAULT_PARSERS


def test_list_keeps_its_order_and_names_stand_for_their_types():
    text = (
        "plugins: [{name: mine, type: my-parser}, {name: chat, type: openai-parser}]\n"
        "requestHandler: {parsers: [{pluginRef: mine}, {pluginRef: chat}, {pluginRef: anthropic-parser}, {pluginRef: absent}]}\n"
    )
    listed = ListedParsers(FakeRouter(("/b", "mine"), ("/z", "other"), ("/a", "mine")), picker(text))
    assert listed.parsers == (("/b", "mine"), ("/a", "mine"), ("", "openai-parser"), ("", "anthropic-parser"))
    table = ParserTable(listed.parsers)
    assert (table.find("/v1/completions").ref, table.find("/z/a").ref, table.find("/z")) == (
        "openai-parser",
        "mine",
        None,
    )


def test_list_is_another_object_only_when_it_says_something_else():
    router = FakeRouter()
    text = "plugins: [{name: mine, type: my-parser}]\nrequestHandler: {parsers: [{pluginRef: mine}]}\n"
    listed = ListedParsers(router, picker(text))
    before = listed.parsers
    router.plan = SimpleNamespace(claims=())
    assert listed.parsers is before
    router.plan = SimpleNamespace(claims=(("/x", "mine"),))
    assert listed.parsers == (("/x", "mine"),)
    listed.take(picker())
    assert listed.parsers == DEFAULT_PARSERS


@pytest.mark.parametrize("taken", [True, False])
def test_type_that_a_package_provides_in_the_host_s_place_is_the_package_s(taken):
    claims = [("/mine", "openai-parser")] if taken else []
    text = "requestHandler: {parsers: [{pluginRef: openai-parser}]}\n"
    assert ListedParsers(FakeRouter(*claims), picker(text)).parsers == (*(claims or [("", "openai-parser")]),)
