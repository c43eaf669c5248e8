"""`hotbay sim` as a process, and `hotbay sim fit` of a server that is one."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result
from hotbay.cli.main import commands
from hotbay.errors import CapacityError, InputError

pytestmark = pytest.mark.process

TIMEOUT_S = 50.0
COMMAND = (sys.executable, "-m", "hotbay.cli", "sim")


@contextmanager
def running(*flags: str, count: int = 1) -> Iterator[list[dict[str, str]]]:
    command = [*COMMAND, "--port=0", "--output=json", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield [json.loads(process.stdout.readline()) for _ in range(count)]
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()


def get(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=TIMEOUT_S) as answer:
        return answer.read().decode()


def fit(*words: str) -> Result:
    return CliRunner().invoke(commands, ["sim", "fit", *words])


def test_replicas_serve_until_they_are_told_to_stop():
    with running("--model=m", "--replicas=3", "--data-parallel-size=2", count=6) as servers:
        assert [server["pod"] for server in servers] == [f"sim-{number}" for number in range(6)]
        for server in servers:
            assert json.loads(get(f"{server['url']}/v1/models"))["data"][0]["id"] == server["model"] == "m"
            labels = f'engine="{server["rank"]}",model_name="m"'
            assert f"vllm:num_requests_running{{{labels}}} 0.0" in get(f"{server['url']}/metrics")


def test_fit_of_a_simulated_server_prints_flags_that_simulate_it():
    flags = (
        "--inter-token-latency=2ms",
        "--time-factor-under-load=2",
        "--max-num-seqs=4",
        "--prefill-time-per-token=20us",
    )
    with running(*flags) as (server,):
        done = fit("--endpoint", server["url"], "--repetitions=1", "--max-num-seqs=4", "--output=json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["held_out"]["count"] == 5
    assert [flag.partition("=")[0] for flag in told["flags"]] == [
        "--max-num-seqs", "--inter-token-latency", "--time-factor-under-load", "--prefill-time-per-token",
        "--prefill-overhead",
    ]  # fmt: skip
    assert "4 answers at a time" in done.stderr
    with running(*told["flags"]) as (again,):
        assert get(f"{again['url']}/health") == ""


def test_fit_prints_what_was_found_and_how_far_off_it_is():
    with running("--inter-token-latency=1ms", "--max-num-seqs=2") as (server,):
        done = fit("--endpoint", server["url"], "--repetitions=1", "--max-num-seqs=2", "--largest-prompt=64")
    assert done.exit_code == 0, done.output
    for part in (
        "  a = ",
        "  b = ",
        "  c = ",
        "error on 4 sizes that were not fitted by: ",
        "hotbay sim --max-num-seqs=2 ",
    ):
        assert part in done.stdout


@pytest.mark.slow
def test_fit_of_llama_that_it_starts_ends_it_again():
    pytest.importorskip("xllamacpp", reason="the package xllamacpp is not installed")
    pytest.importorskip("gguf", reason="the package gguf is not installed")
    done = fit("--llama=tiny", "--repetitions=2", "--max-num-seqs=4", "--largest-prompt=64", "--output=json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["timing"]["prefill_token_s"] > 0


@pytest.mark.parametrize(
    ("endpoint", "error", "words"),
    [
        ("http://127.0.0.1:9", CapacityError, "http://127.0.0.1:9: /v1/models names no model"),
        ("127.0.0.1:9", InputError, "expected http://HOST:PORT"),
        ("https://127.0.0.1:9", InputError, "expected http://HOST:PORT"),
    ],
)
def test_fit_of_what_cannot_be_measured_says_why(endpoint, error, words):
    done = fit("--endpoint", endpoint)
    assert isinstance(done.exception, error)
    assert words in str(done.exception)


def test_fit_of_a_server_that_refuses_says_what_it_said():
    with running("--failure-injection-rate=100", "--failure-types=server_error") as (server,):
        done = fit("--endpoint", server["url"])
    assert "a completion was answered 503" in str(done.exception)


def test_fit_of_a_server_that_answers_one_after_another_says_so():
    with running("--max-num-seqs=1", "--inter-token-latency=1ms") as (server,):
        done = fit("--endpoint", server["url"], "--repetitions=1", "--max-num-seqs=2", "--largest-prompt=64")
    assert "2 answers of 96 tokens were never under way together" in str(done.exception)
