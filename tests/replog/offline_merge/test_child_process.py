"""A real child process makes the snapshot; whatever it does instead, the parent makes it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from replog.independent import Independent
from replog.offline_merge import child_process
from replog.offline_merge.child_process import MergeProcess
from replog.offline_merge.merging_snapshotter import OfflineMerge
from replog.offline_merge.plan import MergePlan
from replog.replica import Replica
from replog.trigger import CompactionSettings
from storage.files.local_files import LocalFileSystem
from tests.harness.replog_machine import KeyValueMachine
from tests.harness.replog_merging import MERGER
from tests.replog.test_replica import put, rows

SETTINGS = CompactionSettings(catchup_entries=0)


class Started:
    """Starts children with another merger, and remembers them."""

    def __init__(self, merger: str = "", *, seconds: float | None = None) -> None:
        self.merger = merger
        self.seconds = seconds
        self.children: list[MergeProcess] = []

    def __call__(self, plan: MergePlan, seconds: float) -> MergeProcess:
        if self.merger:
            plan = replace(plan, merger=f"tests.harness.faulty_mergers:{self.merger}")
        self.children.append(MergeProcess(plan, self.seconds or seconds))
        return self.children[-1]

    @property
    def pids(self) -> list[int]:
        return [each._process.pid for each in self.children]


def opened(directory: Path, start: Started) -> tuple[Replica, Independent]:
    """Returns a leader that lets children merge, with a snapshot and some entries after it."""
    directory.mkdir(exist_ok=True)
    replica = Replica(LocalFileSystem(), str(directory), KeyValueMachine(), clock_ms=lambda: 0.0)
    compactor = Independent(replica, SETTINGS, OfflineMerge(MERGER, start=start, bytes_min=0))
    replica.open()
    compactor.opened()
    replica.lead(replica.log.last_term + 1)
    return replica, compactor


def filled(directory: Path, start: Started) -> tuple[Replica, Independent]:
    replica, compactor = opened(directory, Started())
    put(replica, *"abcdef")
    write(compactor)
    put(replica, "c", "x")
    replica.close()
    return opened(directory, start)


def write(compactor: Independent) -> int:
    """Make a snapshot. Returns how many attempts it took."""
    compactor.begin()
    attempts = 0
    while compactor.is_snapshotting:
        attempts += 1
        while compactor.step():
            pass
        compactor.finish()
    return attempts


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_child_makes_the_snapshot_that_the_parent_would_have_made(tmp_path: Path) -> None:
    start = Started()
    replica, compactor = filled(tmp_path / "log", start)
    before = dict(rows(replica))

    assert write(compactor) == 1

    assert len(start.children) == 1
    made = Path(replica.checkpoints.path(replica.snapshot))
    assert made.stat().st_mode & 0o777 == 0o600
    copy, _ = opened(tmp_path / "copy", Started())
    for key, value in before.items():
        copy.machine.apply(0, key + b"=" + value)
    writer = copy.checkpoints.begin(
        replica.snapshot, copy.machine.snapshot(), copy.machine.digest()
    )
    while writer.step():
        pass
    writer.finish()
    copy.checkpoints.publish(replica.snapshot)
    assert made.read_bytes() == Path(copy.checkpoints.path(replica.snapshot)).read_bytes()
    replica.close()
    assert rows(opened(tmp_path / "log", Started())[0]) == before


FAULTS = {
    "Killed": "was ended by signal 9",
    "Raising": "ended with status 1",
    "Silent": "cannot be used",
    "Garbage": "cannot be used",
    "Truncating": "cannot be used",
    "Wrong": "ended with status 1",
    "WrongAndSure": "the digest of the child's rows differs from that of the state",
    "Missing": "ended with status 1",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_child_that_fails_is_reported_and_the_parent_makes_the_snapshot(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    start = Started(fault)
    replica, compactor = filled(tmp_path / "log", start)
    before = dict(rows(replica))

    assert write(compactor) == 2

    assert FAULTS[fault] in caplog.text
    assert "making one in this process" in caplog.text
    assert not any(is_running(pid) for pid in start.pids)
    assert not list((tmp_path / "log").glob("*.part"))
    replica.close()
    again, compactor = opened(tmp_path / "log", Started())
    assert rows(again) == before
    assert again.snapshot.end == again.log.end
    put(again, "after")
    assert write(compactor) == 1


@pytest.mark.parametrize("fault", ["Hanging", "Talkative"])
def test_a_child_that_does_not_end_is_killed_when_its_time_is_over(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    start = Started(fault, seconds=0.5)
    _, compactor = filled(tmp_path / "log", start)

    assert write(compactor) == 2

    assert "was killed after" in caplog.text
    assert not any(is_running(pid) for pid in start.pids)


def test_what_a_child_says_before_it_dies_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    _, compactor = filled(tmp_path / "log", Started("Raising"))
    write(compactor)

    assert "AssertionError: an unknown command in the log" in caplog.text


def test_a_child_inherits_no_descriptor_and_has_a_low_priority(tmp_path: Path) -> None:
    with tempfile.TemporaryFile() as open_file:
        os.set_inheritable(open_file.fileno(), True)
        _, compactor = filled(tmp_path / "log", Started("Inspecting"))

        assert write(compactor) == 1


@pytest.mark.parametrize("is_started", [True, False])
def test_a_stop_kills_the_child_and_begins_nothing_else(tmp_path: Path, is_started: bool) -> None:
    start = Started("Hanging")
    replica, compactor = filled(tmp_path / "log", start)
    compactor.begin()
    if is_started:
        assert compactor.step()

    compactor.stop()
    while compactor.step():
        pass
    compactor.finish()

    assert not compactor.is_snapshotting
    assert len(start.children) == is_started
    assert not any(is_running(pid) for pid in start.pids)
    assert not list((tmp_path / "log").glob("*.part"))
    before = dict(rows(replica))
    replica.close()
    assert rows(opened(tmp_path / "log", Started())[0]) == before


def test_a_snapshot_that_is_given_up_ends_its_child(tmp_path: Path) -> None:
    start = Started("Hanging")
    _, compactor = filled(tmp_path / "log", start)
    compactor.begin()
    compactor.step()

    compactor.abandon()

    assert not any(is_running(pid) for pid in start.pids)


def test_a_child_that_cannot_be_started_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command: Callable[[MergePlan], list[str]] = lambda _: ["/nowhere/python"]  # noqa: E731
    _, compactor = filled(tmp_path / "log", Started())
    monkeypatch.setattr(child_process, "child_command", command)

    assert write(compactor) == 2
    assert "did not start" in caplog.text


PARENT = """
import sys, time
from replog.offline_merge.child_process import MergeProcess
from replog.offline_merge.plan import MergePlan
child = MergeProcess(MergePlan.from_json(sys.argv[1]), 3600)
print(child._process.pid, flush=True)
while child.step():
    pass
"""


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    replica, _ = opened(tmp_path / "log", Started())
    put(replica, "a")
    replica.log.roll()
    put(replica, "b")
    replica.log.roll()
    plan = MergePlan(
        directory=str(tmp_path / "log"),
        base=replica.snapshot,
        snapshot=replace(replica.snapshot, end=replica.log.end, term=replica.log.last_term),
        digest=replica.machine.digest(),
        merger="tests.harness.faulty_mergers:Waiting",
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, plan.to_json()],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_running(child)

    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()

    while is_running(child):
        time.sleep(0.01)
    assert not list((tmp_path / "log").glob("*.part")), "it has merged for nobody"
