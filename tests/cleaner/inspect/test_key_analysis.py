"""Counts over the keys of a log; properties/test_key_analysis.py compares them with a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.inspect.hot_keys import KEY_BYTES_SHOWN_MAX
from cleaner.keys.growth import DAMAGED, DAY_MS, HOUR_MS, NOTHING_NEW, Growth
from storage.files.paths import KEYS, LOG
from storage.formats.log_config import LogConfig
from tests.harness.compacted_log import CONFIG, DIRECTORY, SETTINGS, CompactedLog
from tests.harness.key_model import analysis_of
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.transactional_producer import TransactionalProducer


def test_an_empty_log_has_no_keys() -> None:
    found = analysis_of(CompactedLog())

    assert (found.tally.keys, found.records, found.hot_keys, found.parts) == (0, 0, (), 1)
    assert found.growth == NOTHING_NEW


def test_keys_are_counted_as_live_and_deleted_and_the_hottest_named() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.append((b"a", b"3"), (b"c", b"1"), (b"b", None))

    found = analysis_of(log, top=2)

    assert (found.tally.keys, found.tally.live, found.deleted_keys) == (3, 2, 1)
    assert (found.records, found.superseded, found.tombstones) == (6, 3, 1)
    assert [
        (each.key, each.counts.records, each.counts.last_offset) for each in found.hot_keys
    ] == [
        (b"a", 3, 3),
        (b"b", 2, 5),
    ]


def test_an_open_transaction_is_counted_apart() -> None:
    log = CompactedLog()
    TransactionalProducer(log, 7).send((b"a", b"1"), (b"b", b"1"))
    log.append((b"c", b"1"))

    found = analysis_of(log)

    assert (found.tally.keys, found.undecided, found.end_offset) == (1, 2, 3)


def test_records_below_the_log_start_do_not_count() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), (b"a", b"2"), (b"b", b"1"))
    log.log.delete_records(log.log.log_end_offset)
    log.append((b"c", b"1"))

    assert analysis_of(log).tally.keys == 1


def test_a_long_key_is_cut_between_two_characters() -> None:
    log = CompactedLog()
    key = ("x" * (KEY_BYTES_SHOWN_MAX - 1) + "ä" * 1000).encode()
    log.append((key, b"1"))

    (found,) = analysis_of(log).hot_keys

    assert found.key == b"x" * (KEY_BYTES_SHOWN_MAX - 1)
    assert found.key_bytes == len(key)


def test_a_damaged_segment_is_named_and_the_rest_counted() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"))
    log.append_segment((b"b", b"1"))
    damage(log)

    found = analysis_of(log)

    assert (found.tally.keys, [fence.base_offset for fence in found.damaged]) == (1, [0])
    assert found.growth == DAMAGED


def test_a_hot_key_whose_record_cannot_be_read_has_no_name() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", b"2"))
    log.append_segment((b"b", b"1"))
    log.clean()
    damage(log)

    named = {each.counts.last_offset: each.key for each in analysis_of(log).hot_keys}

    assert named == {1: b"a", 2: None}


def test_a_sidecar_with_the_hashes_of_other_keys_is_made_again_elsewhere() -> None:
    log = CompactedLog(sidecars=SidecarMode.KEPT)
    log.append_segment((b"a", b"1"))
    other = CompactedLog(sidecars=SidecarMode.KEPT)
    other.append_segment((b"z", b"1"))
    for each in (log, other):
        each.clean()
    (name,) = [name for name in log.files() if name.endswith(KEYS)]
    log.fs.write_bytes(f"{DIRECTORY}/{name}", other.fs.read_bytes(f"{DIRECTORY}/{name}"))
    before = log.fs.read_bytes(f"{DIRECTORY}/{name}")

    (found,) = analysis_of(log).hot_keys

    assert found.key == b"a"
    assert log.fs.read_bytes(f"{DIRECTORY}/{name}") == before


def test_growth_since_the_last_pass_has_rates_and_a_forecast_once_it_is_old_enough() -> None:
    log = CompactedLog()
    log.append_segment(*((b"%d" % number, b"v") for number in range(10)))
    log.clean()
    log.now_ms += DAY_MS
    log.append(*((b"%d" % number, b"v") for number in range(5, 15)), (b"0", None))
    log.now_ms += 2 * DAY_MS

    found = analysis_of(log)

    growth = found.growth
    assert isinstance(growth, Growth)
    assert (growth.period_ms, growth.records) == (2 * DAY_MS, 11)
    assert (growth.new_keys, growth.net_live) == (5, 4)
    assert [(each.window_ms, each.at_most) for each in growth.windows] == [
        (HOUR_MS, 0),
        (DAY_MS, 0),
    ]
    assert not isinstance(found.forecasts, str)
    assert [each.sizes.live_keys for each in found.forecasts] == [14 + 14, 14 + 60]


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, compaction_versions=3),
        replace(CONFIG, compaction_thinning="all for 1h, one per 1h for 1d"),
        replace(CONFIG, min_segment_dead_ratio=0.5),
    ],
)
def test_the_size_after_a_pass_is_not_said_where_more_than_last_values_stay(
    config: LogConfig,
) -> None:
    log = CompactedLog(config)
    log.append((b"a", b"1"), (b"a", b"2"))
    log.clean()

    found = analysis_of(log)

    assert found.sizes.log_bytes is None
    assert (found.tally.keys, found.records) == (1, len(log.records()))


def test_ten_thousand_keys_are_counted_in_the_memory_of_a_hundred() -> None:
    log = CompactedLog(settings=replace(SETTINGS, dedupe_buffer_size=200 * 40))
    for start in range(0, 10_000, 500):
        log.append(*((b"%d" % number, b"v") for number in range(start, start + 500)))
    log.append(*((b"7", b"v") for _ in range(100)))

    found = analysis_of(log, top=1)

    assert found.parts > 100
    assert (found.tally.keys, found.records) == (10_000, 10_100)
    assert found.hot_keys[0].key == b"7"


def damage(log: CompactedLog) -> None:
    """Flip a bit at the end of the first segment with records."""
    name = min(
        name
        for name in log.files()
        if name.endswith(LOG) and log.fs.read_bytes(f"{DIRECTORY}/{name}")
    )
    data = bytearray(log.fs.read_bytes(f"{DIRECTORY}/{name}"))
    data[-1] ^= 1
    log.fs.write_bytes(f"{DIRECTORY}/{name}", bytes(data))
