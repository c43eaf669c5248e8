"""What holds for every test: how much hypothesis tries, and that reports can be sent.

The default lane tries a little at each run, with other values each time; `make test-slow` tries a lot.
"""

from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--proof-scale`: what the proofs' counts and times are multiplied with; 1 is what the product is held to."""
    parser.addoption("--proof-scale", type=float, default=1.0, metavar="FACTOR")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests run in workers, whose reports travel as UTF-8: what a test logged of names that are none is escaped."""
    report = yield
    report.sections = [(title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections]
    return report
