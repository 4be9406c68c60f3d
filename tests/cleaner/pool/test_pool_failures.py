"""The pool with failures: which logs go into quarantine, and how the others continue."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from random import Random

import pytest

import cleaner.passes.verify_pass
from cleaner.rules.step import SegmentSummary
from protocol.records.record_batch import Codec
from storage.files.paths import KEYS
from storage.formats.manifest import SegmentRow
from storage.log.log import PartitionLog
from tests.cleaner.pool_house import (
    CLEANED,
    RESTS_LONG,
    SETTINGS,
    House,
    flip_a_byte,
    keys_of,
    running,
    staged_files,
    until,
)
from tests.harness.blocked_sidecar import block_sidecar, unblock_sidecar
from tests.harness.compacted_log import CONFIG
from tests.harness.key_blocks import index
from tests.harness.log_builder import batch_of, valid
from tests.harness.sidecar_lies import another_size, tell_somewhere


async def test_a_damaged_segment_is_cleaned_around_and_told(house: House) -> None:
    log = house.dirty_log()
    damaged = log.segments[0]
    house.append(log, (b"c", b"1"), (b"c", b"2"), (b"d", b"1"))
    log.roll(house.clock.wall_ms)
    flip_a_byte(log)

    async with running(house.pool()) as pool:
        await until(lambda: bool(pool.status().fenced))
        status = pool.status()
        assessment = pool.assess(log)

    (fence,) = status.fenced[log.topic_partition]
    assert (fence.base_offset, fence.end_offset) == (0, 3)
    assert "CRC" in fence.reason
    assert fence.since_ms == house.clock.wall_ms
    assert status.quarantined == ()
    assert assessment.known_fences == (fence,)
    assert assessment.reason is None, "it waits for news"
    assert log.segments[0] is damaged
    assert log.segments[1].record_count == 2
    assert log.clean_offset == 0
    assert house.probe.events == ["completed orders"]


async def test_damage_that_a_pass_meets_after_a_swap_does_not_end_the_work(house: House) -> None:
    config = replace(CONFIG, segment_bytes=1)
    log = house.log(config=config)
    for pair in ((b"a", b"1"), (b"b", b"1"), (b"c", b"1")):
        house.append(log, pair)
        log.roll(house.clock.wall_ms)
    pool = house.pool()
    await pool.clean_now(log)
    for key in (b"a", b"b", b"c"):
        house.append(log, (key, b"2"))
    flip_a_byte(log, segment=1)

    report = await pool.clean_now(log)
    await pool.stop()

    assert [fence.base_offset for fence in report.fences] == [1]
    assert [segment.record_count for segment in log.segments[:3]] == [0, 1, 0]
    assert house.probe.events == ["completed orders", "completed orders"]


async def test_a_repaired_segment_is_no_longer_told(house: House) -> None:
    log = house.dirty_log()
    flip_a_byte(log)
    pool = house.pool()
    assert (await pool.clean_now(log)).fences

    flip_a_byte(log)
    assert not (await pool.clean_now(log)).fences
    await pool.stop()

    assert pool.status().fenced == {}
    assert keys_of(log) == CLEANED


async def test_a_log_with_a_damaged_segment_is_not_leased(house: House) -> None:
    log = house.dirty_log()
    flip_a_byte(log)
    pool = house.pool()
    await pool.clean_now(log)

    with pytest.raises(ValueError, match="only the broker's own cleaner cleans around the damaged"):
        pool.lease(log)
    await pool.stop()


async def test_a_log_whose_keys_are_compared_is_not_leased(house: House) -> None:
    log = house.dirty_log()
    log.update_config(replace(log.config, compaction_compare_keys=True))
    pool = house.pool()

    with pytest.raises(ValueError, match="only the broker's own cleaner compares keys"):
        pool.lease(log)
    await pool.stop()


async def test_a_fence_is_known_since_it_was_found_first(house: House) -> None:
    log = house.dirty_log()
    flip_a_byte(log)
    pool = house.pool()
    first = await pool.clean_now(log)
    house.clock.wall_ms += 1000

    second = await pool.clean_now(log)
    await pool.stop()

    assert second.fences == first.fences


async def test_a_log_whose_pass_fails_rests_with_its_reason_while_others_are_cleaned(
    house: House,
) -> None:
    bad, good = house.dirty_log("bad"), house.dirty_log("good")
    block_sidecar(bad)

    async with running(house.pool(RESTS_LONG)) as pool:
        await until(lambda: good.clean_offset == 3 and bool(pool.status().quarantined))
        (entry,) = pool.status().quarantined

    assert str(entry.topic_partition) == "bad-0"
    assert ".keys" in entry.reason
    assert len(keys_of(good)) == 2
    assert house.probe.events.count("failed bad") == 1
    assert "quarantined bad disk_error" in house.probe.events


async def test_a_decompression_bomb_is_fenced_with_its_place_and_the_remedy(
    house: House,
) -> None:
    bomb, good = house.log("bomb"), house.dirty_log("good")
    for _ in range(2):
        batch = valid(batch_of([(b"a", bytes(3 << 20))], codec=Codec.ZSTD))
        bomb.appender.append_as_leader(batch, now_ms=house.clock.wall_ms)
    bomb.advance_high_watermark(bomb.sync())
    bomb.roll(house.clock.wall_ms)
    settings = replace(SETTINGS, decompressed_bytes_max=1 << 20)

    async with running(house.pool(settings)) as pool:
        await until(lambda: good.clean_offset == 3 and bool(pool.status().fenced))
        (fence,) = pool.status().fenced[bomb.topic_partition]
        assert "more than 1048576 bytes" in fence.reason
        assert "position 0, base offset 0" in fence.reason
        assert "log.cleaner.decompressed.batch.bytes.max" in fence.reason
        assert len(keys_of(bomb)) == 2

        pool.configure(replace(settings, decompressed_bytes_max=4 << 20))
        await pool.clean_now(bomb)

    assert bomb.clean_offset == 2
    assert len(keys_of(bomb)) == 1


async def test_a_log_that_is_sound_again_is_cleaned_and_released(house: House) -> None:
    log = house.dirty_log()
    block_sidecar(log)

    async with running(house.pool()) as pool:
        await until(lambda: bool(pool.status().quarantined))
        unblock_sidecar(log)
        await until(lambda: not pool.status().quarantined)

    assert keys_of(log) == CLEANED
    assert house.probe.events[-2:] == ["released orders", "completed orders"]


async def test_a_failed_verification_lets_its_log_rest_with_its_sentence_and_is_tried_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = house.dirty_log()
    check, failures = cleaner.passes.verify_pass.check_row, 2

    def say_wrong_rows(row: SegmentRow, found: SegmentSummary) -> None:
        nonlocal failures
        failures -= 1
        check(replace(row, size=row.size + (1 if failures >= 0 else 0)), found)

    monkeypatch.setattr(cleaner.passes.verify_pass, "check_row", say_wrong_rows)
    async with running(house.pool()) as pool:
        await until(lambda: bool(pool.status().quarantined))
        (entry,) = pool.status().quarantined
        assert len(keys_of(log)) == 3
        await until(lambda: not pool.status().quarantined)

    assert entry.topic_partition == log.topic_partition
    assert re.search(r"cleaned segment 0{20}\.v\d+: its row says \d+ bytes, its file", entry.reason)
    assert house.probe.events.count("failed orders") == 2
    assert house.probe.events[-2:] == ["released orders", "completed orders"]
    assert keys_of(log) == CLEANED
    assert staged_files(log) == []


async def test_a_quarantined_log_that_is_deleted_is_forgotten(house: House) -> None:
    block_sidecar(house.dirty_log())

    async with running(house.pool(RESTS_LONG)) as pool:
        await until(lambda: bool(pool.status().quarantined))
        house.logs.clear()
        await until(lambda: not pool.status().quarantined)

    assert house.probe.events[-1] == "released orders"


async def test_a_worker_survives_what_is_nobodys_fault(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    log = house.dirty_log()
    failures = 2

    def logs() -> list[PartitionLog]:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("the list of logs is broken")
        return house.logs

    async with running(house.pool(logs=logs)):
        await until(lambda: log.clean_offset == 3)

    assert [event for event in house.probe.events if event.startswith("worker failed")] == [
        "worker failed RuntimeError('the list of logs is broken')"
    ] * 2
    assert any(record.exc_info for record in caplog.records)


async def test_a_full_disk_is_a_reason_to_rest_not_to_die(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = house.dirty_log()
    pwritev = os.pwritev

    def no_space(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", no_space)
    async with running(house.pool()) as pool:
        await until(lambda: bool(pool.status().quarantined))
        assert "No space left" in pool.status().quarantined[0].reason
        monkeypatch.setattr(os, "pwritev", pwritev)
        await until(lambda: log.clean_offset == 3)

    assert keys_of(log) == CLEANED


async def test_a_sidecar_that_lies_is_a_reason_to_rest_once_and_is_gone_then(house: House) -> None:
    log = house.dirty_log()
    (segment,) = log.cleaning_view().segments
    index(segment, log.identity.hash_key)
    sidecar = segment.segment.path(KEYS)
    tell_somewhere(segment.segment.fs, sidecar, Random(0), another_size)

    async with running(house.pool()) as pool:
        await until(lambda: bool(pool.status().quarantined))
        assert "the next pass rebuilds its key sidecar" in pool.status().quarantined[0].reason
        await until(lambda: log.clean_offset == 3)

    assert keys_of(log) == CLEANED
