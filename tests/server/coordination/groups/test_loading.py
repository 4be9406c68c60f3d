"""A partition of `__consumer_offsets` read back: the same that was known before."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.internal_topics.coordinator_records import write_key
from protocol.internal_topics.group_records import GroupMetadataKey, GroupMetadataValue, GroupRecord
from protocol.records.batch_header import read_header
from protocol.records.record_batch import Record, build_batch
from server.coordination import state_loading
from server.coordination.coordinator_topic import CoordinatorTopic
from server.coordination.groups.loading import load_partition
from server.coordination.state_loading import LoadFailed
from storage.batches.validate import ValidBatch
from storage.files.errors import LogOffline
from tests.harness.offsets_world import commit, offsets_topic, tombstones

GROUP = GroupRecord(
    GroupMetadataKey(group="g"),
    GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol=None, leader=None, members=()
    ),
)


def append_raw(topic: CoordinatorTopic, key: bytes | None, value: bytes | None) -> None:
    """Append what our own code never writes."""
    batch = memoryview(build_batch([Record(offset=0, timestamp=0, key=key, value=value)]))
    topic.log_of(0).appender.append_as_leader(ValidBatch(read_header(batch), batch), now_ms=0)


def damage(log: Path) -> None:
    """Change the last byte of the only segment."""
    (path,) = log.glob("*.log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


async def test_what_was_written_last_is_found_after_a_restart(tmp_path: Path) -> None:
    async with offsets_topic(tmp_path) as (topic, _):
        await topic.ensure()
        await topic.append(0, [commit(0, 1), commit(1, 1), commit(0, 1, group="h"), GROUP])
        await topic.append(0, [commit(0, 2)])
        await topic.append(0, tombstones("h", [("t", 0)]))
        await topic.append(1, [commit(0, 7)])

    async with offsets_topic(tmp_path) as (topic, _):
        loaded = await load_partition(topic, 0)

    assert list(loaded.offsets) == ["g"]
    assert {
        partition: (committed.offset, committed.record_offset)
        for partition, committed in loaded.offsets["g"].by_topic()["t"].items()
    } == {0: (2, 4), 1: (1, 1)}
    assert loaded.records == (GROUP,)
    assert (loaded.records_count, loaded.unreadable_count) == (6, 0)


async def test_a_partition_of_many_pieces_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_loading, "PIECE_BYTES", 300)
    async with offsets_topic(tmp_path) as (topic, _):
        await topic.ensure()
        for number in range(50):
            await topic.append(0, [commit(number % 7, number)])
        topic.log_of(0).roll(0)
        await topic.append(0, [commit(0, 99)])

        loaded = await load_partition(topic, 0)

    offsets = [loaded.offsets["g"].get("t", number) for number in range(7)]
    assert [each and each.offset for each in offsets] == [99, 43, 44, 45, 46, 47, 48]
    assert loaded.records_count == 51


async def test_records_that_nobody_can_read_are_counted_said_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with offsets_topic(tmp_path) as (topic, _):
        await topic.ensure()
        append_raw(topic, b"\0\x63later", b"\0\0")
        append_raw(topic, b"\0\2\0\1g", b"\0\3")
        append_raw(topic, b"", b"")
        await topic.append(0, [commit(0, 5)])

        loaded = await load_partition(topic, 0)

    assert loaded.unreadable_count == 3
    assert loaded.offsets["g"]
    assert "3 records" in caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(write_key(commit().key), b"\0\5", id="offset"),
        pytest.param(write_key(GROUP.key), b"\0\5", id="group"),
    ],
)
async def test_a_value_of_a_later_release_keeps_its_partition_from_being_served(
    tmp_path: Path, key: bytes, value: bytes
) -> None:
    async with offsets_topic(tmp_path) as (topic, _):
        await topic.ensure()
        append_raw(topic, key, value)
        await topic.append(0, [commit(1)])
        with pytest.raises(LoadFailed, match="version 5"):
            await load_partition(topic, 0)


async def test_damage_and_an_offline_log_are_errors_and_never_the_end(tmp_path: Path) -> None:
    async with offsets_topic(tmp_path) as (topic, world):
        await topic.ensure()
        await topic.append(0, [commit(0, 5)])
        damage(Path(topic.log_of(0).directory))
        with pytest.raises(LoadFailed, match="CRC"):
            await load_partition(topic, 0)

        world.directories[0].go_offline("broken")
        with pytest.raises(LogOffline):
            await load_partition(topic, 0)
