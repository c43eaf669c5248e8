"""The texts of a plugin's first project, one body for each extension point. `$name` is filled in by `scaffold`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["ENDPOINTS", "GITIGNORE", "HOT_BODIES", "PYPROJECT", "README", "REQUEST", "TESTS", "Body"]


@dataclass(frozen=True, slots=True)
class Body:
    """What differs from point to point: code, tests, and what the README says.

    `call` and `conformance` are what follows in the README's commands, `before` a whole line before them. `tools` are what
    tests use of the harness' module. `files` are further examples, path → text.
    """

    code: str
    tests: str
    does: str
    reads: str
    parameters: str
    call: str
    endpoints: str = ""
    test_imports: str = ""
    tools: str = "PluginHarness"
    before: str = ""
    conformance: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    sees_requests: bool = True


GITIGNORE: Final = "__pycache__/\n.pytest_cache/\n*.egg-info/\nbuild/\ndist/\n"

PYPROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$id"
version = "0.1.0"
description = "$does"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["hotbay-sdk"]

[tool.hatch.build.targets.wheel]
packages = ["$module"]

[tool.hotbay]
id = "$id"
publisher = "$publisher"
types = ["$type"]
stability = "beta"
${data_types}entrypoint = "$module:plugin"
channel = "dev"

[tool.pytest.ini_options]
pythonpath = ["."]
"""

README: Final = """\
# $id

## Type

`$type`, $article $point.

## What it does

$does

## Inputs consumed

$reads

## Configuration

$parameters

## Work on it

```console
$$ pip install pytest                        # once, where hotbay is installed
$$ python -m pytest
$$ hotbay deps .                             # requirements.lock: versions and hashes of what the plugin needs
$$ hotbay dev .                              # runs it; each save is live in less than a second
$call$$ hotbay conformance --package .$conformance            # every rule of the wire protocol
$$ hotbay pack . --out packages/$id
```

`requirements.lock` belongs to the sources: `pack` takes exactly these wheels, on every machine. Run `hotbay deps .` again
after a change of `[project] dependencies`, and with `--upgrade` for newer versions.
"""

REQUEST: Final = """\
{
  "model": "model",
  "messages": [{"role": "user", "content": "hello"}]
}
"""

TESTS: Final = """\
${test_imports}from hotbay_sdk.testing import $tools
from $module import plugin
"""

ENDPOINTS: Final = """\
default/a: {waiting: 1, running: 2, kv_usage: 0.2}
default/b: {waiting: 9, running: 4, kv_usage: 0.9}
default/c: {}
"""

_SCORER: Final = Body(
    code='''\
"""Rates endpoints by the length of their queues."""

import math
from dataclasses import dataclass

from hotbay_sdk import Context, Endpoint, ParameterError, Plugin, Request, Scorer

plugin = Plugin("$id")


@dataclass(frozen=True)
class Parameters:
    """What an operator may set."""

    soft_limit: int = 8

    def __post_init__(self) -> None:
        if self.soft_limit < 1:
            raise ParameterError("soft_limit", "at least 1")


@plugin.type("$type", reads=["endpoint.waiting"], parameters=Parameters, rowwise=True)
class $cls(Scorer):
    """1 for an empty queue, 0 from `soft_limit` waiting requests up, 0.5 while the length is unknown."""

    def __init__(self, context: Context, parameters: Parameters) -> None:
        self._soft_limit = parameters.soft_limit

    def score(self, request: Request, endpoint: Endpoint) -> float:
        """Rate one endpoint."""
        if math.isnan(endpoint.waiting):
            return 0.5
        return max(0.0, 1.0 - endpoint.waiting / self._soft_limit)
''',
    tests="""\

ENDPOINTS = {"default/idle": {"waiting": 0}, "default/busy": {"waiting": 6}, "default/full": {"waiting": 99}}


def test_shorter_queues_rate_higher() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type", {"soft_limit": 8})
        assert harness.score("mine", ENDPOINTS) == [{"default/idle": 1.0, "default/busy": 0.25, "default/full": 0.0}]


def test_an_unknown_queue_rates_in_the_middle() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type")
        assert harness.score("mine", {"default/new": {}}) == [{"default/new": 0.5}]
""",
    does="Rates endpoints by the length of their queues: short ones high.",
    reads="`endpoint.waiting`.",
    parameters="`soft_limit` (default 8): from so many waiting requests up the rating is 0.",
    endpoints=ENDPOINTS,
    call="--endpoints endpoints.yaml",
)

_FILTER: Final = Body(
    code='''\
"""Leaves out endpoints whose KV cache is nearly full."""

import math
from dataclasses import dataclass

from hotbay_sdk import Context, Endpoint, Filter, ParameterError, Plugin, Request

plugin = Plugin("$id")


@dataclass(frozen=True)
class Parameters:
    """What an operator may set."""

    most: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.most <= 1:
            raise ParameterError("most", "above 0, at most 1")


@plugin.type("$type", reads=["endpoint.kv_usage"], parameters=Parameters)
class $cls(Filter):
    """Keeps endpoints with at most the share `most` of their KV cache in use, and those whose share is unknown."""

    def __init__(self, context: Context, parameters: Parameters) -> None:
        self._most = parameters.most

    def keep(self, request: Request, endpoint: Endpoint) -> bool:
        """Say whether an endpoint may serve the request."""
        return math.isnan(endpoint.kv_usage) or endpoint.kv_usage <= self._most
''',
    tests="""\

ENDPOINTS = {"default/empty": {"kv_usage": 0.1}, "default/full": {"kv_usage": 0.9}, "default/new": {}}


def test_nearly_full_endpoints_are_left_out() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type", {"most": 0.5})
        assert harness.keep("mine", ENDPOINTS) == [["default/empty", "default/new"]]
""",
    does="Leaves out endpoints whose KV cache is nearly full.",
    reads="`endpoint.kv_usage`.",
    parameters="`most` (default 0.8): the largest share in use with which an endpoint is kept.",
    endpoints=ENDPOINTS,
    call="--endpoints endpoints.yaml",
)

_PICKER: Final = Body(
    code='''\
"""Picks the best endpoint nearly always, and the next best now and then."""

from collections.abc import Sequence
from dataclasses import dataclass

from hotbay_sdk import Context, ParameterError, Picker, Plugin, Request, ScoredEndpoint

plugin = Plugin("$id")


@dataclass(frozen=True)
class Parameters:
    """What an operator may set."""

    explore: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.explore <= 1:
            raise ParameterError("explore", "0 to 1")


@plugin.type("$type", parameters=Parameters)
class $cls(Picker):
    """The highest total; with the probability `explore` the second highest first."""

    def __init__(self, context: Context, parameters: Parameters) -> None:
        self._random = context.random
        self._explore = parameters.explore

    def pick(self, request: Request, candidates: Sequence[ScoredEndpoint], n: int) -> Sequence[ScoredEndpoint]:
        """Choose at most `n`, best first."""
        best = sorted(candidates, key=lambda candidate: candidate.score, reverse=True)
        if len(best) > 1 and self._random.random() < self._explore:
            best[0], best[1] = best[1], best[0]
        return best[:n]
''',
    tests="""\

ENDPOINTS = {"default/a": {}, "default/b": {}}
TOTALS = {"default/a": 0.2, "default/b": 0.9}


def test_the_highest_total_is_picked() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type", {"explore": 0.0})
        assert harness.pick("mine", ENDPOINTS, TOTALS) == ["default/b"]


def test_exploring_takes_the_next_best_first() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type", {"explore": 1.0})
        assert harness.pick("mine", ENDPOINTS, TOTALS, n=2) == ["default/a", "default/b"]
""",
    does="Picks the endpoint with the highest total, and the next best now and then.",
    reads="The totals of the scorers.",
    parameters="`explore` (default 0.05): how often the next best goes first.",
    endpoints="default/a: {total: 0.2}\ndefault/b: {total: 0.9}\n",
    call="--endpoints endpoints.yaml --picks 2",
)

_PRODUCER: Final = Body(
    code='''\
"""Makes a data column that scorers and filters of any package can consume."""

from collections.abc import Mapping

from hotbay_sdk import DataProducer, Endpoints, Plugin, Request

plugin = Plugin("$id")


@plugin.type("$type", reads=["request.prompt"], produces={"PromptLength.chars": "request"})
class $cls(DataProducer):
    """The length of the prompt: one number for a request, so its scope is `request`; one for each endpoint is `row`."""

    def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, float]:
        """Make one request's data."""
        return {"PromptLength.chars": float(len(request.prompt))}
''',
    tests="""\


def test_the_prompts_length_is_produced() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type")
        made = harness.produce("mine", {"default/a": {}}, [{"prompt": "four"}, {"prompt": ""}])
        assert made == {"PromptLength.chars": [[4.0], [0.0]]}
""",
    does="Makes the data column PromptLength.chars, the length of a request's prompt.",
    reads="`request.prompt`.",
    parameters="It takes no parameters.",
    endpoints=ENDPOINTS,
    call="--endpoints endpoints.yaml",
)

_PROFILE_HANDLER: Final = Body(
    code='''\
"""Runs every profile once, and goes on with the first that found an endpoint."""

from collections.abc import Mapping, Sequence

from hotbay_sdk import Endpoints, Plugin, ProfileHandler, Request

plugin = Plugin("$id")

Results = Mapping[str, Sequence[str] | None]


@plugin.type("$type")
class $cls(ProfileHandler):
    """Profiles in the order of the configuration."""

    def pick(self, request: Request, profiles: Sequence[str], results: Results, endpoints: Endpoints) -> Sequence[str]:
        """Name the profiles that have not run."""
        return [name for name in profiles if name not in results]

    def process(self, request: Request, results: Results, endpoints: Endpoints) -> tuple[str, Results] | None:
        """The first profile with a result is the primary one; None where there is none: the filters say why."""
        found = {name: ids for name, ids in results.items() if ids}
        return (next(iter(found)), found) if found else None
''',
    tests="""\


def test_every_profile_runs_once() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type")
        assert harness.profile_pick("mine", ["a", "b"], {}) == ["a", "b"]
        assert harness.profile_pick("mine", ["a", "b"], {"a": ["default/x"], "b": None}) == []


def test_the_first_profile_with_a_result_is_primary() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type")
        assert harness.profile_process("mine", {"a": None, "b": ["default/x"]}) == ("b", {"b": ["default/x"]})
        assert harness.profile_process("mine", {"a": None}) is None
""",
    does="Runs every profile once and goes on with the first that found an endpoint.",
    reads="The results of the profiles.",
    parameters="It takes no parameters.",
    endpoints=ENDPOINTS,
    call="--endpoints endpoints.yaml --profile default",
)

_PRE_REQUEST: Final = Body(
    code='''\
"""Counts where requests went."""

from collections import Counter

from hotbay_sdk import Context, Endpoints, PickedTargets, Plugin, PreRequest, Request

plugin = Plugin("$id")


@plugin.type("$type")
class $cls(PreRequest):
    """Tells in its log, once in a while, which endpoint got how many. Whatever it knows goes with its process."""

    def __init__(self, context: Context, every: int = 100) -> None:
        self._log = context.logger
        self._every = every
        self.counts: Counter[str] = Counter()

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """Take note of the first target."""
        self.counts[picked.targets[0]] += 1
        if self.counts.total() % self._every == 0:
            self._log.info("requests so far: %s", dict(self.counts))
''',
    tests="""\


def test_every_hundredth_request_tells_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type")
        for _ in range(100):
            harness.pre_request("mine", {"default/a": {}}, ["default/a"])
    assert capsys.readouterr().err.count("{'default/a': 100}") == 1
""",
    does="Counts which endpoint requests were sent to, and tells it in its log.",
    reads="The chosen endpoints.",
    parameters="It takes no parameters.",
    endpoints=ENDPOINTS,
    call="--endpoints endpoints.yaml",
    test_imports="import pytest\n",
)

HOT_BODIES: Final = {
    "scorer": _SCORER,
    "filter": _FILTER,
    "picker": _PICKER,
    "producer": _PRODUCER,
    "profile-handler": _PROFILE_HANDLER,
    "pre-request": _PRE_REQUEST,
}
