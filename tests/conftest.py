"""Hooks for all tests: KOMPAKT_REQUIRE_ALL=1 turns skips into failures; long files run first; each call
that belongs to the event loop's thread is checked, here and in the brokers that tests start."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.harness.examples import EXAMPLES_QUICK, IS_QUICK
from tests.harness.wrong_threads import WRONG_CALLS

# `storage/threads.py` reads it at import, here and in the processes that inherit the environment.
os.environ.setdefault("KOMPAKT_DEBUG_THREADS", "1")

settings.register_profile("ci", deadline=None, print_blob=True)
settings.register_profile(
    "soak",
    deadline=None,
    print_blob=True,
    max_examples=5_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", deadline=None, print_blob=True, max_examples=EXAMPLES_QUICK)
settings.load_profile(
    next((name for name in ("soak", "quick") if os.environ.get(f"KOMPAKT_{name.upper()}")), "ci")
)

if IS_QUICK:
    # Waiting for the disk is a fifth of the time, and no test of `make quick` loses power: the disk that
    # forgets what was not synced is one in memory.
    os.fsync = os.fdatasync = os.fstat  # type: ignore[assignment]

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
    "crash/test_cleaning_crash_states.py",
    "crash/test_attack_soak.py",
    "properties/test_codec_oracles.py",
    "cleaner/fuzz/test_kernel_under_asan.py",
    "server/test_large_groups.py",
    "server/test_large_requests.py",
    "conformance/test_connect.py",
    "conformance/test_streams.py",
    "crash/test_cleaning_soak.py",
    "crash/test_mirror_soak.py",
    "crash/test_failover_drill.py",
]
"""The files that take half a minute or more, and the folder whose files count as one, longest first. If
one started last, it would keep one process busy after the others have finished."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the long files to the front; the others keep their order."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONG_FILES)}
    last = len(ranks)
    items.sort(key=lambda item: ranks.get(item.path, ranks.get(item.path.parent, last)))


def pytest_collection_finish() -> None:
    """Let the collector leave out the tests, a million objects that stay, and look less often: a tenth
    of the processor time of the quick tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


class FilesSharedOut(LoadFileScheduling):  # type: ignore[misc]
    """Assign each file to one process, and all files of `pipeline` to the same: they share a Spark
    session, and every further JVM would slow all of them down. PySpark changes the log's handlers, too.
    Files of `pipeline/export` that do not use Spark are as all others."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        if not scope.startswith(PIPELINE) or is_without_spark(scope):
            return scope
        return PIPELINE


@cache
def is_without_spark(file: str) -> bool:
    """Returns whether a file is of `pipeline/export` and no test in it is marked `spark`."""
    if not file.startswith(f"{PIPELINE}export/"):
        return False
    return "mark.spark" not in (TESTS.parent / file).read_text("utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test in which a thread called what belongs to another, even if the error was caught."""
    yield
    wrong = WRONG_CALLS.take()
    assert not wrong, "\n".join(wrong)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesSharedOut:
    return FilesSharedOut(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn skips into failures if everything must run: a test that did not run proves nothing."""
    report = yield
    must_run = os.environ.get("KOMPAKT_REQUIRE_ALL") == "1"
    if report.skipped and must_run and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} must run here (KOMPAKT_REQUIRE_ALL=1), but: {reason}"
    return report


@pytest.fixture(autouse=True)
def _logging_as_before() -> Generator[None]:
    """Undo what a command does to the logging of its process, which here has other tests."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
