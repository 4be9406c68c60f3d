"""What a group has committed: what holds, and when it expires (KIP-211)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.group_records import GroupMetadataKey, GroupRecord
from protocol.offset_commits import CommittedOffset
from server.groups.committed_offsets import CommittedOffsets, OffsetExpiry
from tests.harness.offsets_world import commit, tombstones

RETENTION_MS = 100


def offsets_of(*records: GroupRecord) -> CommittedOffsets:
    offsets = CommittedOffsets()
    offsets.applied(records, 0)
    return offsets


def test_a_commit_is_there_once_it_is_applied_and_gone_with_its_tombstone() -> None:
    offsets = offsets_of(commit(0, 5, metadata="m", leader_epoch=2), commit(1, 6, topic="u"))

    assert offsets.get("t", 0) == CommittedOffset(
        offset=5, commit_timestamp=7, metadata="m", leader_epoch=2, record_offset=0
    )
    assert sorted(offsets.keys()) == [("t", 0), ("u", 1)]
    assert offsets.get("t", 1) is None
    assert offsets.get("x", 0) is None

    offsets.applied(tombstones("g", [("t", 0), ("t", 9)]), 2)

    assert list(offsets.by_topic()) == ["u"]
    assert len(offsets) == 1


def test_records_of_the_group_itself_are_passed_over() -> None:
    assert not offsets_of(GroupRecord(GroupMetadataKey(group="g"), None))


@given(st.permutations(range(4)))
def test_what_stands_later_in_the_log_holds_whoever_is_applied_first(order: list[int]) -> None:
    log = [commit(0, offset) for offset in range(4)]
    offsets = CommittedOffsets()
    for record_offset in order:
        offsets.applied([log[record_offset]], record_offset)

    found = offsets.get("t", 0)
    assert found is not None
    assert found.offset == 3


def test_a_tombstone_from_before_a_commit_does_not_take_it() -> None:
    offsets = CommittedOffsets()
    offsets.applied([commit(0, 5)], 9)
    offsets.applied(tombstones("g", [("t", 0)]), 8)
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
