"""What a standby prints: one line for each change, and a download's rate and time left."""

from __future__ import annotations

import json

import pytest

from cli.standby.coordinator_copies import TopicFacts
from cli.standby.metadata_copy import CopyFacts
from cli.standby.progress import LINE_SECONDS, Progress, State
from server.metadata.followers import LAG_OFFSETS_MAX

MIB = 1 << 20


class Screen:
    """The lines of a standby, on a clock that the test moves."""

    def __init__(self, *, is_json: bool = False) -> None:
        self.lines: list[str] = []
        self.now_s = 100.0
        self.progress = Progress(
            facts(1), leader="host:9092", directory="/copy", follower_id="me", is_json=is_json,
            say=self.lines.append, now_ms=lambda: 0, clock=lambda: self.now_s,
        )  # fmt: skip

    def new(self) -> list[str]:
        """Returns the lines since the last call."""
        lines, self.lines[:] = list(self.lines), []
        return lines


def facts(end: int) -> CopyFacts:
    return CopyFacts(
        end=end, term=2, digest=0xAB, revision=0, snapshot_end=1, installs=0, disk_bytes=10
    )


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_each_change_of_the_state_is_one_line(screen: Screen) -> None:
    progress = screen.progress
    progress.enter(State.CONNECTING)
    progress.enter(State.CONNECTING)
    progress.answered(facts(5), 2, 50)
    progress.answered(facts(20), 2, 50)
    progress.answered(facts(50), 2, 50)
    progress.answered(facts(51), 2, 51)
    progress.enter(State.WAITING, "no route")
    states = [line.partition(": ")[0].split()[-1] for line in screen.new()]
    assert states == ["connecting", "catching-up", "current", "waiting"]


def test_a_download_says_its_rate_and_the_time_left_once_in_a_while(screen: Screen) -> None:
    progress = screen.progress
    progress.received(90, MIB, 10 * MIB, MIB)
    assert len(screen.new()) == 1
    screen.now_s += LINE_SECONDS / 2
    progress.received(90, 2 * MIB, 10 * MIB, MIB)
    assert screen.new() == []
    screen.now_s += LINE_SECONDS
    progress.received(90, 4 * MIB, 10 * MIB, 2 * MIB)
    (line,) = screen.new()
    assert "below 90" in line
    assert "/s," in line
    assert line.endswith("left")
    progress.received(90, 10 * MIB, 10 * MIB, 6 * MIB)
    assert len(screen.new()) == 1
    assert progress.as_json()["download"] is None


def test_a_download_that_continues_after_a_break_counts_its_rate_from_there(
    screen: Screen,
) -> None:
    progress = screen.progress
    progress.received(90, 4 * MIB, 10 * MIB, 4 * MIB)
    progress.interrupted()
    screen.now_s += 1000
    progress.received(90, 5 * MIB, 10 * MIB, MIB)
    screen.now_s += 1
    progress.received(90, 6 * MIB, 10 * MIB, MIB)
    download = progress.as_json()["download"]
    assert isinstance(download, dict)
    assert download["bytes_per_second"] == 2 * MIB


def test_programs_get_everything_as_one_object_a_line() -> None:
    screen = Screen(is_json=True)
    screen.progress.answered(facts(50), 2, 53)
    (line,) = screen.lines
    found = json.loads(line)
    assert (found["state"], found["end"], found["lag"]) == ("catching-up", 50, 3)
    assert found["digest"] == f"{0xAB:032x}"
    assert found["seen_seconds_ago"] == 0


def topic(lag: int = 0, *waiting: str) -> TopicFacts:
    return TopicFacts(
        name="__consumer_offsets", partitions=2, lag=lag, installs=0, waiting=waiting, disk_bytes=1
    )


def test_it_is_ready_once_it_has_metadata_groups_and_transactions(screen: Screen) -> None:
    progress = screen.progress
    progress.enter(State.CONNECTING)
    assert progress.not_ready == "connecting"
    progress.answered(facts(50), 2, 50)
    assert "not asked for yet" in str(progress.not_ready)
    progress.coordinators_answered((topic(LAG_OFFSETS_MAX),))
    assert progress.not_ready is None
    progress.coordinators_answered((topic(LAG_OFFSETS_MAX + 1),))
    assert progress.not_ready == "__consumer_offsets: 10,001 offsets behind"
    progress.coordinators_answered((topic(0, "it needs a checkpoint"),))
    assert progress.not_ready == "__consumer_offsets: it needs a checkpoint"
    progress.coordinators_wait("no route")
    assert progress.not_ready == "the coordinators' topics: no route"
