"""Committed offsets read by compiled code: the same as record by record in Python."""

from __future__ import annotations

import sys
import uuid

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from protocol.internal_topics.coordinator_records import UnknownRecord, write_key, write_value
from protocol.internal_topics.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    read_record,
)
from protocol.records.control_record import ControlType, TransactionMarker, write_transaction_marker
from protocol.records.offset_commits import CommittedOffset, OffsetScan
from protocol.records.record_batch import Codec, Record, build_batch
from protocol.wire.errors import CorruptBatch, DecodeError
from tests.harness.examples import examples
from tests.harness.offsets_model import (
    Commit,
    Event,
    Marker,
    OffsetsModel,
    Place,
    Tombstones,
    events,
)

BYTES_MAX = 1 << 20
ID = uuid.UUID(int=77)


def record(offset: int, key: bytes | None, value: bytes | None) -> Record:
    return Record(offset=offset, timestamp=0, key=key, value=value)


def commit_key(group: str = "g", topic: str = "t", partition: int = 0) -> bytes:
    return write_key(OffsetCommitKey(group=group, topic=topic, partition=partition))


def commit_value(offset: int = 5, **fields: object) -> bytes:
    values = {"metadata": "", "commit_timestamp": 7} | fields
    return write_value(OffsetCommitValue(offset=offset, **values))  # type: ignore[arg-type]


GROUP_KEY = write_key(GroupMetadataKey(group="g"))
GROUP_VALUE = write_value(
    GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=())
)


def scanned(*records: tuple[bytes | None, bytes | None], codec: Codec = Codec.NONE) -> OffsetScan:
    scan = OffsetScan(decompressed_bytes_max=BYTES_MAX)
    numbered = [record(offset, *each) for offset, each in enumerate(records)]
    assert scan.feed(build_batch(numbered, codec=codec)) == len(records)
    return scan


def test_a_committed_offset_is_small_and_a_value() -> None:
    one = CommittedOffset(offset=5, commit_timestamp=7, metadata="m", leader_epoch=2)
    assert one == CommittedOffset(offset=5, commit_timestamp=7, metadata="m", leader_epoch=2)
    assert one != CommittedOffset(offset=5, commit_timestamp=7)
    assert len({one, CommittedOffset(offset=5, commit_timestamp=7)}) == 2
    assert sys.getsizeof(one) <= 72
    assert "offset=5" in repr(one)
    with pytest.raises(AttributeError):
        one.offset = 6  # type: ignore[misc]


@pytest.mark.parametrize("codec", list(Codec))
def test_the_last_commit_of_each_partition_is_found(codec: Codec) -> None:
    scan = scanned(
        (commit_key(partition=0), commit_value(5)),
        (commit_key(partition=1), commit_value(6, leader_epoch=3, metadata="mé", topic_id=ID)),
        (commit_key(topic="u"), commit_value(1)),
        (commit_key(partition=0), commit_value(9, expire_timestamp=99)),
        (commit_key(topic="u"), None),
        codec=codec,
    )
    assert scan.offsets == {
        "g": {
            "t": {
                0: CommittedOffset(
                    offset=9, commit_timestamp=7, expire_timestamp=99, record_offset=3
                ),
                1: CommittedOffset(
                    offset=6,
                    commit_timestamp=7,
                    leader_epoch=3,
                    metadata="mé",
                    topic_id=ID,
                    record_offset=1,
                ),
            },
            "u": {},
        }
    }
    assert (scan.records_count, scan.unreadable_count) == (5, 0)


def test_records_of_other_types_are_kept_by_key_as_long_as_they_are_not_deleted() -> None:
    other = write_key(GroupMetadataKey(group="h"))
    scan = scanned((GROUP_KEY, b"\0\0"), (other, b"\0\1"), (GROUP_KEY, GROUP_VALUE))
    assert list(scan.others.items()) == [(other, b"\0\1"), (GROUP_KEY, GROUP_VALUE)]
    assert not scanned((GROUP_KEY, GROUP_VALUE), (GROUP_KEY, None)).others


def test_a_commit_of_a_later_release_is_never_skipped() -> None:
    with pytest.raises(UnknownRecord, match="version 5 at offset 0"):
        scanned((commit_key(), b"\0\5" + commit_value()[2:]))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(None, b"", id="no_key"),
        pytest.param(b"\0", b"", id="a_key_of_one_byte"),
        pytest.param(b"\0\1\0\1g\0\1t\0\0\0", commit_value(), id="a_short_key"),
        pytest.param(commit_key() + b"x", commit_value(), id="a_long_key"),
        pytest.param(b"\0\1\0\1\xff\0\1t\0\0\0\0", commit_value(), id="a_group_that_is_no_text"),
        pytest.param(commit_key(), b"\0", id="a_value_without_a_version"),
        pytest.param(commit_key(), commit_value()[:-1], id="a_short_value"),
        pytest.param(commit_key(), commit_value() + b"x", id="a_long_value"),
        pytest.param(commit_key(), b"\xff\xff" + commit_value()[2:], id="a_negative_version"),
        pytest.param(
            commit_key(),
            commit_value(metadata="xx").replace(b"xx", b"\xff\xff"),
            id="metadata_that_is_no_text",
        ),
    ],
)
def test_what_is_no_commit_is_counted_and_changes_nothing(
    key: bytes | None, value: bytes | None
) -> None:
    scan = scanned((commit_key(partition=1), commit_value()), (key, value))
    assert (scan.unreadable_count, scan.unreadable_offset) == (1, 1)
    assert list(scan.offsets["g"]["t"]) == [1]
    assert not scan.others


def test_what_is_committed_in_a_transaction_holds_from_its_marker_on() -> None:
    scan = fed(Commit("a", (0, 1), producer_id=1000))
    assert scan.offsets == {}
    assert list(scan.pending[1000]["a"]["t"]) == [0, 1]
    scan.feed(batch_of(Marker(1000, is_commit=True), 2))
    assert list(scan.offsets["a"]["t"]) == [0, 1]
    assert scan.pending == {}


def test_what_is_aborted_is_gone_and_another_transaction_goes_on() -> None:
    scan = fed(Commit("a", (0,), 1000), Commit("a", (1,), 1001), Marker(1000, is_commit=False))
    assert scan.offsets == {}
    assert list(scan.pending) == [1001]


def test_a_commit_that_stands_behind_one_in_a_transaction_holds_when_that_is_committed() -> None:
    scan = fed(Commit("a", (0,), 1000), Commit("a", (0,)), Marker(1000, is_commit=True))
    assert scan.offsets["a"]["t"][0].record_offset == 1


def test_a_tombstone_takes_what_is_pending() -> None:
    scan = fed(Commit("a", (0,), 1000), Tombstones("a", (0,)), Marker(1000, is_commit=True))
    assert scan.offsets["a"]["t"] == {}


def test_a_batch_in_a_transaction_may_be_compressed() -> None:
    written = [record(0, commit_key(), commit_value())]
    scan = OffsetScan(decompressed_bytes_max=BYTES_MAX)
    ids = {"producer_id": 1, "producer_epoch": 0}
    scan.feed(build_batch(written, codec=Codec.ZSTD, is_transactional=True, **ids))  # type: ignore[arg-type]
    assert list(scan.pending[1]["g"]["t"]) == [0]


@pytest.mark.parametrize(
    ("key", "unreadable_count"),
    [
        pytest.param(b"\0\0\0", 1, id="half_a_key"),
        pytest.param(None, 1, id="no_key"),
        pytest.param(b"\0\0\0\5", 0, id="of_another_kind"),
    ],
)
def test_a_control_record_that_is_no_marker_ends_nothing(
    key: bytes | None, unreadable_count: int
) -> None:
    scan = fed(Commit("a", (0,), 1000))
    ids = {"producer_id": 1000, "producer_epoch": 0}
    control = [record(1, key, b"\0\0\0\0\0\0")]
    scan.feed(build_batch(control, is_transactional=True, is_control=True, **ids))  # type: ignore[arg-type]
    assert list(scan.pending) == [1000]
    assert scan.unreadable_count == unreadable_count


def test_only_offsets_are_read_in_a_transaction() -> None:
    scan = OffsetScan(decompressed_bytes_max=BYTES_MAX)
    ids = {"producer_id": 1, "producer_epoch": 0}
    group = [record(0, GROUP_KEY, GROUP_VALUE)]
    scan.feed(build_batch(group, is_transactional=True, **ids))  # type: ignore[arg-type]
    assert (scan.others, scan.unreadable_count) == ({}, 1)


@given(st.lists(events(), max_size=20))
def test_it_finds_what_the_log_says_by_definition(log: list[Event]) -> None:
    scan, model = OffsetScan(decompressed_bytes_max=BYTES_MAX), OffsetsModel()
    for event in log:
        scan.feed(batch_of(event, model.end_offset))
        model = model.then(event)
        assert held(scan.offsets) == model.held()
        unstable = {place for groups in scan.pending.values() for place in held(groups)}
        assert unstable == model.unstable()


def held(groups: dict[str, dict[str, dict[int, CommittedOffset]]]) -> dict[Place, int]:
    return {
        (group, partition): committed.record_offset
        for group, topics in groups.items()
        for partition, committed in topics.get("t", {}).items()
    }


def fed(*log: Event) -> OffsetScan:
    scan, model = OffsetScan(decompressed_bytes_max=BYTES_MAX), OffsetsModel()
    for event in log:
        scan.feed(batch_of(event, model.end_offset))
        model = model.then(event)
    return scan


def batch_of(event: Event, base_offset: int) -> bytearray:
    """The batch that an event is, as it stands in the log."""
    producer_id = None if isinstance(event, Tombstones) else event.producer_id
    return build_batch(
        [record(base_offset + index, *each) for index, each in enumerate(written_by(event))],
        producer_id=-1 if producer_id is None else producer_id,
        producer_epoch=-1 if producer_id is None else 0,
        is_transactional=producer_id is not None,
        is_control=isinstance(event, Marker),
    )


def written_by(event: Event) -> list[tuple[bytes, bytes | None]]:
    match event:
        case Commit():
            return [
                (commit_key(event.group, "t", each), commit_value()) for each in event.partitions
            ]
        case Tombstones():
            return [(commit_key(event.group, "t", each), None) for each in event.partitions]
        case Marker():
            kind = ControlType.COMMIT if event.is_commit else ControlType.ABORT
            return [write_transaction_marker(TransactionMarker(type=kind, coordinator_epoch=0))]


def test_bytes_that_are_no_sound_batches_are_an_error() -> None:
    batch = build_batch([record(0, commit_key(), commit_value())])
    scan = OffsetScan(decompressed_bytes_max=BYTES_MAX)
    with pytest.raises(CorruptBatch, match="byte 0"):
        scan.feed(batch[:-1])
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        scan.feed(batch)
    assert scan.feed(b"") == -1


text = st.text(st.sampled_from("ab-é€"), max_size=3)
values = st.builds(
    OffsetCommitValue,
    offset=st.integers(-1, 1 << 62),
    leader_epoch=st.integers(-1, 9),
    metadata=text,
    commit_timestamp=st.integers(0, 1 << 60),
    expire_timestamp=st.sampled_from([-1, -1, 5]),
    topic_id=st.sampled_from([uuid.UUID(int=0), ID, uuid.UUID(int=1)]),
)
keys = st.builds(OffsetCommitKey, group=text, topic=text, partition=st.integers(0, 2))
damage = st.one_of(st.none(), st.tuples(st.integers(0, 60), st.integers(0, 255)))


def damaged(data: bytes, how: tuple[int, int] | None) -> bytes:
    if how is None:
        return data
    at, byte = how
    return data[:at] + bytes([byte]) + data[at + 1 :]


@st.composite
def possibly_damaged_commits(draw: st.DrawFn) -> tuple[bytes, bytes | None]:
    key, value = damaged(write_key(draw(keys)), draw(damage)), draw(st.none() | values)
    assume(key[:2] in (b"\0\0", b"\0\1"))
    return key, None if value is None else damaged(write_value(value), draw(damage))


@settings(max_examples=examples(150))
@given(st.lists(possibly_damaged_commits(), min_size=1, max_size=12))
@example([(b"\0\1\0\2\0\xa9\0\0\0\0\0\0", b"\1\4" + bytes(22))])
@example([(b"\0\1\0\0\0\1\x80\0\0\0\0", b"\0\5" + bytes(22))])
def test_it_reads_what_reading_record_by_record_finds(
    records: list[tuple[bytes, bytes | None]],
) -> None:
    expected: dict[tuple[str, str, int], tuple[int, int, str, int]] = {}
    unreadable = 0
    for key_bytes, value_bytes in records:
        try:
            found = read_record(key_bytes, value_bytes)
        except UnknownRecord:
            return
        except DecodeError:
            unreadable += 1
            continue
        assert isinstance(found.key, OffsetCommitKey)
        place = (found.key.group, found.key.topic, found.key.partition)
        expected.pop(place, None)
        if isinstance(found.value, OffsetCommitValue):
            value = found.value
            expected[place] = (
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
            )

    try:
        scan = scanned(*records)
    except UnknownRecord:
        # It looks at the value's version first, also where the key cannot be read.
        newest = OffsetCommitValue.versions[1]
        assert any(int.from_bytes(value[:2], signed=True) > newest for _, value in records if value)
        return

    assert {
        (group, topic, partition): (c.offset, c.leader_epoch, c.metadata, c.commit_timestamp)
        for group, topics in scan.offsets.items()
        for topic, partitions in topics.items()
        for partition, c in partitions.items()
    } == expected
    assert scan.unreadable_count == unreadable
