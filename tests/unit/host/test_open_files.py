"""How many clients a limit of open files is good for."""

import resource
from collections.abc import Iterator

import pytest
from hotbay.gateway.limits import GatewayLimits
from hotbay.open_files import OpenFiles, needed_files, raise_limit

WANTED = GatewayLimits().connections


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield found
    resource.setrlimit(resource.RLIMIT_NOFILE, found)


@pytest.mark.parametrize(
    ("limit", "clients"),
    [(3, 1), (100, 25), (256, 64), (1024, 256), (4096, 1536), (needed_files(WANTED) - 2, WANTED - 1)],
)
def test_few_open_files_are_few_clients_and_the_operator_is_told(limit: int, clients: int) -> None:
    files = OpenFiles(limit)
    assert files.clients(WANTED) == clients
    problem = files.problem(WANTED)
    assert problem is not None
    assert problem.code == "RESOURCE_EXHAUSTED"
    assert f"{clients} clients can be connected at once" in problem.message
    assert "LimitNOFILE" in problem.hint


@pytest.mark.parametrize("limit", [needed_files(WANTED), 1 << 20])
def test_enough_open_files_are_no_problem(limit: int) -> None:
    assert OpenFiles(limit).clients(WANTED) == WANTED
    assert OpenFiles(limit).problem(WANTED) is None


def test_soft_limit_is_raised_as_far_as_it_is_needed_and_never_lowered(limits: tuple[int, int]) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    assert raise_limit(10, dry_run=True).limit == min(needed_files(10), hard)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256
    assert raise_limit(10).limit == min(needed_files(10), hard)
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raised == (min(needed_files(10), hard), hard)
    raise_limit(1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == raised
