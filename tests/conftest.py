"""What holds for every test: under KOMPAKT_REQUIRE_ALL=1 nothing may be skipped."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ci", deadline=None, print_blob=True)
settings.register_profile(
    "soak",
    deadline=None,
    print_blob=True,
    max_examples=5_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("soak" if os.environ.get("KOMPAKT_SOAK") else "ci")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where everything must run: what didn't run proves nothing."""
    report = yield
    must_run = os.environ.get("KOMPAKT_REQUIRE_ALL") == "1"
    if report.skipped and must_run and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} must run here (KOMPAKT_REQUIRE_ALL=1), but: {reason}"
    return report
