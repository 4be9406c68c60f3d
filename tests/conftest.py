"""What holds for all tests: under KOMPAKT_REQUIRE_ALL=1 none is skipped; long files come first."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

settings.register_profile("ci", deadline=None, print_blob=True)
settings.register_profile(
    "soak",
    deadline=None,
    print_blob=True,
    max_examples=5_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", deadline=None, print_blob=True, max_examples=20)
settings.load_profile(
    next((name for name in ("soak", "quick") if os.environ.get(f"KOMPAKT_{name.upper()}")), "ci")
)

# Every Spark here runs cold code on little data: the optimizing compiler would cost more than it saves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

TESTS = Path(__file__).parent
PIPELINE = "tests/pipeline/"
LONG_FILES = [
    "pipeline",
    "crash/test_transaction_histories.py",
    "conformance/test_groups.py",
    "crash/test_kill_nine.py",
    "test_wheel.py",
    "crash/test_storage_crash_states.py",
    "conformance/test_million_records.py",
    "cleaner/test_races.py",
    "properties/test_codec_oracles.py",
    "conformance/test_produce_consume_commands.py",
    "conformance/test_connect.py",
    "conformance/test_streams.py",
    "crash/test_cleaning_soak.py",
]
"""Those that take half a minute or more, and the folder whose files are as one, the longest first: begun
last, each would keep one process busy when the others have nothing left."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first; the others keep their order."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONG_FILES)}
    last = len(ranks)
    items.sort(key=lambda item: ranks.get(item.path, ranks.get(item.path.parent, last)))


class FilesSharedOut(LoadFileScheduling):  # type: ignore[misc]
    """A process at a time runs a file. The files of `pipeline` go to the same one: they share a session
    of Spark, and every further JVM would cost all of them."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return PIPELINE if scope.startswith(PIPELINE) else scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesSharedOut:
    return FilesSharedOut(config, log)


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
