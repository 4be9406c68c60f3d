"""Every accepted topic setting has its effect, or says that it has none.

Each test here is named after its setting. `SHOWN_ELSEWHERE` lists the settings tested in other files.
"""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path
from typing import Any

import pytest

from protocol.records.batch_header import TimestampType, read_header
from protocol.records.record_batch import Codec
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from storage.batches.validate import Refused, ValidBatch, validate_batch
from storage.files.errors import NoSpace
from storage.files.local_files import LocalFileSystem
from storage.files.paths import LOG
from storage.formats.config_property import properties_of
from storage.formats.log_config import LogConfig
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.log.opening import create_log
from storage.segment.reader import Isolation
from storage.segment.timestamp_lookup import TimestampOffset
from tests.harness.log_builder import batch_of
from tests.harness.log_home import LogHome, read_all
from tests.harness.memory_fs import MemoryFileSystem

MEBIBYTE = 1 << 20
NOW_MS = 1_800_000_000_000

SHOWN_ELSEWHERE = {
    "cleanup.policy": "tests/storage/log/test_retention.py",
    "min.cleanable.dirty.ratio": "tests/cleaner/rules/test_pick.py",
    "min.compaction.lag.ms": "tests/cleaner/rules/test_pick.py",
    "min.compaction.lag.bytes": "tests/cleaner/rules/test_pick.py",
    "compaction.idle.roll.ms": "tests/cleaner/rules/test_pick.py",
    "max.compaction.lag.ms": "tests/cleaner/rules/test_pick.py",
    "delete.retention.ms": "tests/cleaner/passes/test_clean_tombstones.py",
    "compaction.unkeyed.records": "tests/cleaner/passes/test_clean.py",
    "compaction.unkeyed.topic": "tests/server/durability/test_unkeyed_appends.py",
    "compaction.strategy": "tests/server/test_strategies.py",
    "compaction.strategy.header": "tests/server/test_strategies.py",
    "compaction.versions": "tests/cleaner/passes/test_clean_history.py",
    "compaction.ttl.ms": "tests/cleaner/expiry/test_sweep.py",
    "compaction.ttl.header": "tests/cleaner/expiry/test_sweep.py",
    "compaction.thinning": "tests/cleaner/passes/test_clean_history.py",
    "min.segment.dead.ratio": "tests/cleaner/passes/test_spared_segments.py",
    "compaction.compare.keys": "tests/cleaner/passes/test_compare_keys.py",
    "compaction.compression.type": "tests/cleaner/passes/test_clean_codecs.py",
    "compaction.priority": "tests/cleaner/pool/test_topic_limits.py",
    "compaction.window": "tests/cleaner/pool/test_topic_limits.py",
    "compaction.io.max.bytes.per.second": "tests/cleaner/pool/test_topic_limits.py",
    "compaction.undo.ms": "tests/storage/undo/test_kept_passes.py",
    "compaction.undo.bytes": "tests/storage/undo/test_kept_passes.py",
    "view.partitioner": "tests/server/lookup/test_partitioner.py",
    "compaction.hold.groups": "tests/server/coordination/groups/test_holds.py",
    "compaction.hold.max.ms": "tests/server/coordination/groups/test_holds.py",
    "retention.ms": "tests/storage/log/test_retention.py",
    "retention.bytes": "tests/storage/log/test_retention.py",
    "compression.type": "tests/server/handlers/test_produce.py",
    "compression.gzip.level": "tests/server/handlers/test_produce.py",
    "compression.lz4.level": "tests/server/handlers/test_produce.py",
    "compression.zstd.level": "tests/server/handlers/test_produce.py",
    "flush.messages": "tests/storage/log/test_syncs.py",
    "flush.ms": "tests/storage/log/test_syncs.py",
    "min.insync.replicas": "tests/server/handlers/test_produce.py",
    "mirror.link": "tests/server/handlers/test_mirror_requests.py",
    "mirror.source.topic.id": "tests/server/test_live_topic_configs.py",
    "mirror.compaction": "tests/server/test_live_topic_configs.py",
    "mirror.local.properties": "tests/server/handlers/test_mirror_requests.py",
    "remote.storage.enable": "tests/storage/formats/test_unused_log_config.py",
}


def test_every_setting_has_a_test_or_says_that_it_has_no_effect() -> None:
    for declared in properties_of(LogConfig).values():
        if declared.internal or "no effect" in declared.doc:
            continue
        test = f"test_{declared.name.replace('.', '_')}"
        assert test in globals() or declared.name in SHOWN_ELSEWHERE, declared.name


@pytest.mark.parametrize(("name", "file"), SHOWN_ELSEWHERE.items())
def test_where_a_settings_effect_is_shown_it_is_mentioned(name: str, file: str) -> None:
    text = (Path(__file__).parents[3] / file).read_text()
    codec = "compression.{codec}.level"
    assert any(form in text for form in (name, name.replace(".", "_"), codec))


def log_of(config: dict[str, str], home: LogHome | None = None) -> PartitionLog:
    """Returns a log of a topic that was created with these overrides."""
    home = home if home is not None else LogHome(MemoryFileSystem())
    home.config = LogConfig.from_overrides(config, LogConfig())
    return home.create()


def produce(
    log: PartitionLog, *, now_ms: int = NOW_MS, size: int = 100, **batch: Any
) -> Appended | Refused:
    """Validate and append a batch, as the produce handler does."""
    sent = memoryview(batch_of([(b"key", bytes(size))], **{"timestamps": [now_ms]} | batch))
    valid = validate_batch(sent, log.validation_rules(now_ms=now_ms))
    if isinstance(valid, Refused):
        return valid
    appended = log.appender.append_as_leader(valid, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)
    return appended


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# ---------------------------------------------------------------- sizes


def test_max_message_bytes() -> None:
    log = log_of({"max.message.bytes": "1000"})
    assert isinstance(produce(log, size=800), Appended)

    refused = produce(log, size=1000)

    assert isinstance(refused, Refused)
    assert refused.error_code is ErrorCode.MESSAGE_TOO_LARGE


def test_segment_bytes() -> None:
    log = log_of({"segment.bytes": str(MEBIBYTE)})
    for _ in range(6):
        produce(log, size=300_000)
    assert bases(log) == [0, 3]
    assert all(segment.size <= MEBIBYTE for segment in log.segments)


def test_segment_ms() -> None:
    log = log_of({"segment.ms": "1000"})
    produce(log, now_ms=NOW_MS)
    assert not log.roll_if_due(NOW_MS + 999)
    assert log.roll_if_due(NOW_MS + 1000)
    assert bases(log) == [0, 1]


def test_segment_jitter_ms() -> None:
    home = LogHome(MemoryFileSystem())
    config = {"segment.ms": "1000", "segment.jitter.ms": "400"}
    home.config = LogConfig.from_overrides(config, LogConfig())
    opening = home.opening(epoch=1, is_clean=False, now_ms=NOW_MS)
    for jitter, rolls_after_ms in ((0.0, 1000), (0.25, 900), (1.0, 600)):
        identity = dataclasses.replace(home.identity, directory=f"/data/orders/{rolls_after_ms}")
        log = create_log(home.fs, identity, home.config, opening, jitter=jitter)
        produce(log, now_ms=NOW_MS)
        assert not log.roll_if_due(NOW_MS + rolls_after_ms - 1)
        assert log.roll_if_due(NOW_MS + rolls_after_ms)


def test_segment_index_bytes() -> None:
    """The time index has the larger entries, 12 bytes each: three of them fill 36 bytes."""
    log = log_of({"segment.index.bytes": "36", "index.interval.bytes": "0"})
    for number in range(9):
        produce(log, now_ms=NOW_MS + number)
    assert len(log.segments) > 1
    assert all(segment.index_bytes <= 36 for segment in log.segments)


def test_index_interval_bytes() -> None:
    entries = {}
    for interval in (0, 1000, 4096):
        log = log_of({"index.interval.bytes": str(interval)})
        for number in range(100):
            produce(log, now_ms=NOW_MS + number)
        entries[interval] = len(log.segments[0].index())
    assert entries[0] == 99
    assert entries[0] > entries[1000] > entries[4096] > 0


# ---------------------------------------------------------------- disk space


def on_disk(tmp_path: Path) -> LogHome:
    return LogHome(LocalFileSystem(), directory=str(tmp_path / "orders" / "0"))


def allocated(log: PartitionLog, number: int) -> int:
    return Path(log.segments[number].path(LOG)).stat().st_blocks * 512


def test_preallocate(tmp_path: Path) -> None:
    config = {"preallocate": "true", "segment.bytes": str(8 * MEBIBYTE)}
    log = log_of(config, on_disk(tmp_path))
    assert allocated(log, 0) >= 8 * MEBIBYTE
    produce(log)
    assert Path(log.segments[0].path(LOG)).stat().st_size == log.segments[0].size

    log.roll(NOW_MS)

    assert allocated(log, 0) < MEBIBYTE, "a sealed segment keeps what it uses"
    assert allocated(log, 1) >= 8 * MEBIBYTE
    produce(log)
    assert [record.offset for record in read_all(log)] == [0, 1]
    log.close()


def test_preallocate_gives_back_what_a_crash_left_reserved(tmp_path: Path) -> None:
    config = {"preallocate": "true", "segment.bytes": str(8 * MEBIBYTE)}
    home = on_disk(tmp_path)
    home.background.inline = False
    log = log_of(config, home)
    produce(log)
    log.roll(NOW_MS)
    produce(log)

    # The background work of the roll never ran.
    recovered = home.open()

    assert bases(recovered) == [0, 1]
    assert allocated(recovered, 0) < MEBIBYTE
    assert recovered.log_end_offset == 2


def test_preallocate_refuses_a_roll_for_which_there_is_no_space() -> None:
    home = LogHome(MemoryFileSystem())
    log = log_of({"preallocate": "true", "segment.bytes": str(MEBIBYTE)}, home)
    produce(log, size=600_000)
    names = home.fs.list(log.directory)
    assert isinstance(home.fs, MemoryFileSystem)
    home.fs.faults.fail("reserve", errno.ENOSPC)

    with pytest.raises(NoSpace):
        produce(log, size=600_000)

    assert home.fs.list(log.directory) == names
    assert log.offline_reason is None
    assert isinstance(produce(log, size=600_000), Appended), "there is space again"
    assert bases(log) == [0, 1]


def test_without_preallocate_nothing_is_set_aside(tmp_path: Path) -> None:
    log = log_of({"segment.bytes": str(8 * MEBIBYTE)}, on_disk(tmp_path))
    produce(log)
    assert allocated(log, 0) < MEBIBYTE
    log.close()


# ---------------------------------------------------------------- timestamps


def batches_of(log: PartitionLog) -> list[TimestampType]:
    result = log.reader.read(
        Offset(0), max_bytes=MEBIBYTE, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    assert not isinstance(result, ErrorCode)
    (region,) = result.regions
    data, position, types = region.read_bytes(), 0, []
    region.release()
    while position < len(data):
        header = read_header(data, position)
        types.append(header.timestamp_type)
        position += header.size_bytes
    return types


@pytest.mark.parametrize("codec", list(Codec))
def test_message_timestamp_type(codec: Codec) -> None:
    """LogAppendTime changes the header of compressed batches too, and their readers see it."""
    log = log_of({"message.timestamp.type": "LogAppendTime"})
    for number in range(3):
        timestamps = [5, NOW_MS * 2]
        sent = memoryview(batch_of([(b"a", b"1")] * 2, timestamps=timestamps, codec=codec))
        now_ms = NOW_MS + 1000 * number
        valid = validate_batch(sent, log.validation_rules(now_ms=now_ms))
        assert isinstance(valid, ValidBatch)
        appended = log.appender.append_as_leader(valid, now_ms=now_ms)
        assert isinstance(appended, Appended)
        assert appended.log_append_time_ms == now_ms
    log.advance_high_watermark(log.log_end_offset)

    times = [record.timestamp for record in read_all(log)]

    assert times == [NOW_MS, NOW_MS, NOW_MS + 1000, NOW_MS + 1000, NOW_MS + 2000, NOW_MS + 2000]
    assert log.reader.offset_for_timestamp(0) == TimestampOffset(NOW_MS, Offset(0))
    assert log.reader.offset_for_timestamp(NOW_MS + 1) == TimestampOffset(NOW_MS + 1000, Offset(2))
    assert log.reader.offset_for_timestamp(NOW_MS + 2001) is None
    assert log.reader.offset_of_max_timestamp() == TimestampOffset(NOW_MS + 2000, Offset(4))


def test_message_timestamp_type_follows_a_live_change() -> None:
    log = log_of({})
    for kind in ("CreateTime", "LogAppendTime", "CreateTime"):
        log.update_config(dataclasses.replace(log.config, message_timestamp_type=kind))
        appended = produce(log, now_ms=NOW_MS, timestamps=[NOW_MS - 5])
        assert isinstance(appended, Appended)
        assert appended.log_append_time_ms == (NOW_MS if kind == "LogAppendTime" else -1)

    create, append = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
    assert batches_of(log) == [create, append, create]
    assert [record.timestamp for record in read_all(log)] == [NOW_MS - 5, NOW_MS, NOW_MS - 5]
    assert log.reader.offset_for_timestamp(NOW_MS - 4) == TimestampOffset(NOW_MS, Offset(1))


@pytest.mark.parametrize("codec", list(Codec))
def test_message_timestamp_before_max_ms(codec: Codec) -> None:
    is_bounded_by(log_of({"message.timestamp.before.max.ms": "1000"}), codec, -1)


@pytest.mark.parametrize("codec", list(Codec))
def test_message_timestamp_after_max_ms(codec: Codec) -> None:
    is_bounded_by(log_of({"message.timestamp.after.max.ms": "1000"}), codec, 1)


def is_bounded_by(log: PartitionLog, codec: Codec, direction: int) -> None:
    """Returns whether timestamps may be 1000 ms from now in a direction, and not 1001."""
    near, far = NOW_MS + direction * 1000, NOW_MS + direction * 1001
    assert isinstance(produce(log, timestamps=[near], codec=codec), Appended)

    refused = produce(log, timestamps=[far], codec=codec)

    assert isinstance(refused, Refused)
    assert refused.error_code is ErrorCode.INVALID_TIMESTAMP
    log.update_config(dataclasses.replace(log.config, message_timestamp_type="LogAppendTime"))
    assert isinstance(produce(log, timestamps=[far], codec=codec), Appended), (
        "the producer's timestamps do not count then"
    )
