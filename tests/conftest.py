"""What holds for all tests: under KOMPAKT_REQUIRE_ALL=1 none is skipped; long files come first."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

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

TESTS = Path(__file__).parent
LONG_FILES = [
    "crash/test_transaction_histories.py",
    "conformance/test_groups.py",
    "crash/test_seeded_bugs.py",
    "crash/test_kill_nine.py",
    "test_wheel.py",
    "crash/test_storage_crash_states.py",
    "conformance/test_spark.py",
    "conformance/test_million_records.py",
    "pipeline/test_table_job.py",
    "cleaner/test_races.py",
    "properties/test_codec_oracles.py",
    "conformance/test_produce_consume_commands.py",
    "pipeline/test_read_committed.py",
    "conformance/test_connect.py",
    "crash/test_cleaning_soak.py",
]
"""Those that take half a minute or more, the longest first: begun last, each would keep one process
busy when the others have nothing left."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first; the others keep their order."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


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
