"""Sidecars of a pass: made if missing, used if sound, removed if the broker keeps none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from cleaner.passes.index import SegmentIndex
from protocol.records.record_batch import Record, build_batch
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Offset
from storage.files.errors import DamagedSidecar
from storage.files.paths import KEYS, LOG, join
from tests.harness.compacted_log import (
    CONFIG,
    DIRECTORY,
    HASH_KEY,
    SETTINGS,
    CompactedLog,
    meter_of,
)
from tests.harness.log_builder import run_of
from tests.harness.memory_fs import Loss
from tests.harness.sidecar_mode import damage

OFFSET_DELTA_MAX = (1 << 31) - 1


def log_of_three() -> CompactedLog:
    log = CompactedLog()
    for number in range(3):
        log.append_segment((b"a", b"%d" % number), (b"%d" % number, b"v"))
    return log


def index(log: CompactedLog, *, keeps: bool = True) -> tuple[int, int]:
    """Index all segments. Returns how many sidecars were made, and how many bytes were read."""
    meter = meter_of(log.log, log.log.generation)
    settings = replace(SETTINGS, keeps_key_sidecars=keeps)
    with SegmentIndex(HASH_KEY, settings, meter) as segments:
        indexed = segments.index_segments(log.log.cleaning_view().segments)
        assert [each.totals.entries for each in indexed] == [2, 2, 2]
        return segments.built, meter.bytes_read


def sidecars(log: CompactedLog) -> list[str]:
    return [join(DIRECTORY, name) for name in log.files() if name.endswith(KEYS)]


def test_a_segment_is_read_once_for_its_sidecar_and_never_again() -> None:
    log = log_of_three()

    assert index(log) == (3, sum(segment.size for segment in log.log.segments))
    assert index(log) == (0, 0)
    assert len(sidecars(log)) == 3


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_sidecar_is_made_anew_when_that_is_noticed(seed: int) -> None:
    log = log_of_three()
    index(log)
    sound = [log.fs.read_bytes(path) for path in sidecars(log)]
    damage(log.fs, sidecars(log)[1], Random(seed))

    for _ in range(2):
        try:
            meter = meter_of(log.log, log.log.generation)
            with SegmentIndex(HASH_KEY, SETTINGS, meter) as segments:
                for segment in segments.index_segments(log.log.cleaning_view().segments):
                    list(segment.blocks())
        except DamagedSidecar:
            # The damage is found only when the block is read; then the sidecar is removed.
            assert len(sidecars(log)) == 2

    assert [log.fs.read_bytes(path) for path in sidecars(log)] == sound


def _another_hash_key(log: CompactedLog) -> None:
    meter = meter_of(log.log, log.log.generation)
    SegmentIndex(bytes(16), SETTINGS, meter).index_segments(log.log.cleaning_view().segments[:1])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda log: log.fs.unlink(sidecars(log)[0]), id="absent"),
        pytest.param(lambda log: log.fs.write_bytes(sidecars(log)[0], b""), id="empty"),
        pytest.param(
            lambda log: log.fs.write_bytes(sidecars(log)[0], log.fs.read_bytes(sidecars(log)[1])),
            id="of_another_segment",
        ),
    ],
)
def test_only_what_has_no_sidecar_of_its_own_is_read(
    change: Callable[[CompactedLog], None],
) -> None:
    log = log_of_three()
    index(log)
    change(log)

    assert index(log) == (1, log.log.segments[0].size)


def test_a_sidecar_under_another_hash_key_is_made_anew() -> None:
    log = log_of_three()
    _another_hash_key(log)

    assert index(log)[0] == 3


def test_where_nobody_keeps_them_none_stays() -> None:
    log = log_of_three()
    index(log)

    index(log, keeps=False)
    assert sidecars(log) == []
    assert index(log, keeps=False)[0] == 3
    assert [name for name in log.files() if KEYS in name] == []


def test_a_damaged_segment_leaves_no_sidecar_of_it() -> None:
    log = log_of_three()
    log.fs.overwrite(log.log.segments[1].path(LOG), 65, b"\xff")

    with pytest.raises(CorruptBatch):
        index(log)

    assert len(sidecars(log)) == 1
    assert not [name for name in log.files() if name.endswith(".cleaned")]


def test_sidecars_survive_a_restart_and_what_a_crash_tore_is_made_anew() -> None:
    log = log_of_three()
    index(log)
    log.reopen(is_clean=True)
    assert index(log) == (0, 0)

    for seed in range(5):
        torn = CompactedLog()
        torn.fs = log.fs.after_crash(Loss.TORN, Random(seed))
        torn.log = log.log
        torn.reopen(is_clean=False, loss=Loss.NOTHING)
        built, _ = index(torn)
        assert built <= 3
        assert index(torn) == (0, 0)


@pytest.mark.parametrize("base", [0, 1 << 40])
def test_the_last_offset_that_a_segment_can_hold_is_cleaned_as_any_other(base: int) -> None:
    """2^31 - 1 above the base uses all bits of an entry's offset; the tombstone bit is separate."""
    last = base + OFFSET_DELTA_MAX
    log = CompactedLog()
    log.log.truncate_fully_and_start_at(Offset(base))
    put(log, base, (b"a", b"1"), (b"t", b"1"), (b"b", b"1"))
    put(log, last - 1, (b"a", b"2"), (b"t", None))
    put(log, last + 1, (b"b", b"2"))
    assert [segment.base_offset for segment in log.log.segments] == [base, last + 1]

    log.clean()
    assert log.pairs() == [(last - 1, b"a", b"2"), (last, b"t", None), (last + 1, b"b", b"2")]
    log.now_ms += CONFIG.delete_retention_ms
    log.clean()
    assert log.pairs() == [(last - 1, b"a", b"2"), (last + 1, b"b", b"2")]


def put(log: CompactedLog, offset: int, *pairs: tuple[bytes, bytes | None]) -> None:
    """Append a batch at its offset, as a follower does."""
    records = [
        Record(offset=offset + number, timestamp=0, key=key, value=value)
        for number, (key, value) in enumerate(pairs)
    ]
    batch = build_batch(records, base_offset=offset, leader_epoch=0)
    log.log.appender.append_as_follower(run_of(batch), now_ms=log.now_ms)
    log.make_durable()
