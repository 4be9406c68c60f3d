"""What a group has committed: what holds, and when it expires (KIP-211)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.internal_topics.group_records import GroupMetadataKey, GroupRecord
from protocol.records.offset_commits import CommittedOffset
from server.coordination.groups.committed_offsets import CommittedOffsets, OffsetExpiry
from tests.harness.offsets_model import (
    PARTITIONS,
    Commit,
    Event,
    Marker,
    OffsetsModel,
    Tombstones,
    events,
)
from tests.harness.offsets_world import commit, tombstones

RETENTION_MS = 100


def offsets_of(*records: GroupRecord) -> CommittedOffsets:
    offsets = CommittedOffsets()
    offsets.apply(records, 0)
    return offsets


def test_a_commit_is_there_once_it_is_applied_and_gone_with_its_tombstone() -> None:
    offsets = offsets_of(commit(0, 5, metadata="m", leader_epoch=2), commit(1, 6, topic="u"))

    assert offsets.get("t", 0) == CommittedOffset(
        offset=5, commit_timestamp=7, metadata="m", leader_epoch=2, record_offset=0
    )
    assert sorted(offsets.places()) == [("t", 0), ("u", 1)]
    assert offsets.get("t", 1) is None
    assert offsets.get("x", 0) is None

    offsets.apply(tombstones("g", [("t", 0), ("t", 9)]), 2)

    assert list(offsets.by_topic()) == ["u"]
    assert len(offsets) == 1


def test_records_of_the_group_itself_are_passed_over() -> None:
    assert not offsets_of(GroupRecord(GroupMetadataKey(group="g"), None))


@given(st.permutations(range(4)))
def test_what_stands_later_in_the_log_holds_whoever_is_applied_first(order: list[int]) -> None:
    log = [commit(0, offset) for offset in range(4)]
    offsets = CommittedOffsets()
    for record_offset in order:
        offsets.apply([log[record_offset]], record_offset)

    found = offsets.get("t", 0)
    assert found is not None
    assert found.offset == 3


def test_a_tombstone_from_before_a_commit_does_not_take_it() -> None:
    offsets = CommittedOffsets()
    offsets.apply([commit(0, 5)], 9)
    offsets.apply(tombstones("g", [("t", 0)]), 8)
    assert offsets


def test_topics_without_partitions_are_left_out_of_what_was_read() -> None:
    read = {"t": {0: CommittedOffset(offset=1, commit_timestamp=0)}, "u": {}}
    assert list(CommittedOffsets(read).by_topic()) == ["t"]
    assert not CommittedOffsets({"u": {}})


@pytest.mark.parametrize(
    ("expiry", "now_ms", "expected"),
    [
        pytest.param(OffsetExpiry(), 106, [], id="before_retention_after_the_commit"),
        pytest.param(OffsetExpiry(), 107, ["t"], id="retention_after_the_commit"),
        pytest.param(OffsetExpiry(empty_since_ms=50), 149, [], id="while_the_group_was_not_empty"),
        pytest.param(
            OffsetExpiry(empty_since_ms=50),
            150,
            ["t", "u"],
            id="retention_after_the_group_was_left",
        ),
        pytest.param(
            OffsetExpiry(subscribed=frozenset({"t"})), 1000, ["u"], id="a_topic_subscribed_to"
        ),
    ],
)
def test_an_offset_expires_when_its_time_is_over(
    expiry: OffsetExpiry, now_ms: int, expected: list[str]
) -> None:
    offsets = offsets_of(
        commit(0, topic="t", commit_timestamp=7), commit(0, topic="u", commit_timestamp=90)
    )
    expired = offsets.expired(expiry, now_ms=now_ms, retention_ms=RETENTION_MS)
    assert [topic for topic, _ in expired] == expected


def test_a_commit_that_said_how_long_it_is_to_be_kept_expires_then() -> None:
    offsets = offsets_of(commit(0, expire_timestamp=20))
    left = OffsetExpiry(empty_since_ms=0)
    assert offsets.expired(left, now_ms=19, retention_ms=1) == []
    assert offsets.expired(OffsetExpiry(), now_ms=20, retention_ms=1000) == [("t", 0)]


# In transactions.


def test_what_is_committed_in_a_transaction_holds_when_that_is_committed() -> None:
    offsets = offsets_of(commit(0, 5))
    offsets.add_pending(1000, [commit(0, 6), commit(1, 7)], 1)
    assert [offsets.is_unstable("t", number) for number in (0, 1, 2)] == [True, True, False]
    assert (held(offsets), offsets.places()) == ({0: 5}, [("t", 0), ("t", 1)])

    offsets.end_transaction(1000, is_commit=True)

    assert held(offsets) == {0: 6, 1: 7}
    assert not offsets.is_unstable("t", 0)
    assert not list(offsets.producers())


def test_what_is_aborted_is_gone() -> None:
    offsets = offsets_of()
    offsets.add_pending(1000, [commit(0, 6)], 0)
    assert offsets
    offsets.end_transaction(1000, is_commit=False)
    assert not offsets


def test_several_producers_wait_for_one_partition_each_for_itself() -> None:
    offsets = offsets_of()
    offsets.add_pending(1000, [commit(0, 5)], 0)
    offsets.add_pending(1001, [commit(0, 6)], 1)

    offsets.end_transaction(1001, is_commit=True)
    assert (held(offsets), offsets.is_unstable("t", 0)) == ({0: 6}, True)

    # It stands before what holds.
    offsets.end_transaction(1000, is_commit=True)
    assert (held(offsets), offsets.is_unstable("t", 0)) == ({0: 6}, False)


def test_of_a_transactions_commits_for_one_partition_the_last_counts() -> None:
    offsets = offsets_of()
    offsets.add_pending(1000, [commit(0, 5)], 0)
    offsets.add_pending(1000, [commit(0, 6)], 1)
    offsets.end_transaction(1000, is_commit=True)
    assert held(offsets) == {0: 6}


def test_a_commit_beside_a_transaction_holds_by_its_place_in_the_log() -> None:
    offsets = offsets_of()
    offsets.add_pending(1000, [commit(0, 5), commit(1, 5)], 0)
    offsets.apply([commit(0, 9)], 2)
    offsets.end_transaction(1000, is_commit=True)
    assert held(offsets) == {0: 9, 1: 5}


def test_the_end_of_a_transaction_without_offsets_changes_nothing() -> None:
    offsets = offsets_of(commit(0, 5))
    offsets.end_transaction(1000, is_commit=True)
    assert held(offsets) == {0: 5}


def test_a_tombstone_takes_what_waits_before_it_and_not_what_comes_after() -> None:
    offsets = offsets_of()
    offsets.add_pending(1000, [commit(0, 5), commit(1, 5)], 0)
    offsets.add_pending(1001, [commit(0, 6)], 3)
    offsets.apply(tombstones("g", [("t", 0)]), 2)
    assert offsets.places() == [("t", 0), ("t", 1)] == sorted(offsets.places_of({"t"}))
    for producer_id in (1000, 1001):
        offsets.end_transaction(producer_id, is_commit=True)
    assert held(offsets) == {0: 6, 1: 5}


def test_what_a_transaction_may_change_does_not_expire() -> None:
    offsets = offsets_of(commit(0), commit(1))
    offsets.add_pending(1000, [commit(0)], 2)
    assert offsets.expired(OffsetExpiry(), now_ms=1000, retention_ms=1) == [("t", 1)]


lags = st.sets(st.sampled_from(["applied", "ended"]))


@given(st.lists(st.tuples(events(groups=["g"]), lags), max_size=25))
def test_they_are_what_the_log_says_whoever_hears_first_what_is_durable(
    steps: list[tuple[Event, set[str]]],
) -> None:
    world = LaggingOffsets()
    for event, lagging in steps:
        world.append(event)
        if "applied" not in lagging:
            world.apply()
        if "ended" not in lagging:
            world.end()
    world.apply()
    world.end()
    assert {
        ("g", partition): found.record_offset
        for partition, found in world.offsets.by_topic().get("t", {}).items()
    } == world.model.held()
    places = [("t", number) for number in range(PARTITIONS)]
    unstable = {("g", place[1]) for place in places if world.offsets.is_unstable(*place)}
    assert unstable == world.model.unstable()


class LaggingOffsets:
    """Offsets that learn that records are durable when the test says so; markers have their own
    queue."""

    def __init__(self) -> None:
        self.offsets = CommittedOffsets()
        self.model = OffsetsModel()
        self._appended: list[tuple[list[GroupRecord], int]] = []
        self._markers: list[Marker] = []

    def append(self, event: Event) -> None:
        at = self.model.end_offset
        match event:
            case Commit():
                self._append_commit([commit(each) for each in event.partitions], event, at)
            case Tombstones():
                places = [("t", each) for each in event.partitions]
                self._appended.append((list(tombstones("g", places)), at))
            case Marker():
                self._markers.append(event)
        self.model = self.model.then(event)

    def _append_commit(self, records: list[GroupRecord], event: Commit, at: int) -> None:
        if event.producer_id is None:
            self._appended.append((records, at))
        else:
            # A producer continues only when its last transaction is over.
            self.end()
            self.offsets.add_pending(event.producer_id, records, at)

    def apply(self) -> None:
        for records, at in self._appended:
            self.offsets.apply(records, at)
        self._appended.clear()

    def end(self) -> None:
        for marker in self._markers:
            self.offsets.end_transaction(marker.producer_id, is_commit=marker.is_commit)
        self._markers.clear()


def held(offsets: CommittedOffsets) -> dict[int, int]:
    return {number: found.offset for number, found in offsets.by_topic().get("t", {}).items()}
