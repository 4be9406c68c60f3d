"""The search for a key: its records on disk, and when they will go."""

from __future__ import annotations

from dataclasses import replace

from cleaner.inspect.key_search import KeyHistory, find_key
from cleaner.rules.hold import Hold
from protocol.wire.numbers import Offset
from tests.harness.compacted_log import CONFIG, CompactedLog, meter_of
from tests.harness.transactional_producer import TransactionalProducer


def history(log: CompactedLog, key: bytes = b"a") -> KeyHistory:
    view = log.log.cleaning_view(as_if_rolled=True)
    meter = meter_of(log.log, view.generation)
    return find_key(view, key, log.settings, meter=meter, now_ms=log.now_ms)


def offsets(found: KeyHistory) -> list[tuple[int, int | None]]:
    return [(record.hit.offset, record.superseded_by) for record in found.records]


def test_each_record_is_listed_with_its_segment_and_what_supersedes_it() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append((b"a", b"22"))

    found = history(log)

    assert offsets(found) == [(0, 2), (2, None)]
    assert [record.segment_base_offset for record in found.records] == [0, 2]
    assert [record.hit.value_bytes for record in found.records] == [1, 2]
    assert found.fate == (
        "1 superseded record goes with the first pass that reaches offset 2;"
        " the log is clean up to 0",
        "its last value, at offset 2, stays",
    )


def test_a_tombstone_waits_for_a_pass_then_for_its_horizon_and_is_physically_gone() -> None:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"a", None), (b"b", b"1"))
    fresh = history(log)
    assert (fresh.tombstone_offset, fresh.tombstone_goes_at_ms) == (1, None)
    assert (
        "waits for a first pass over it, after which it stays for delete.retention.ms=1000 (1.0 s)"
        in fresh.fate[1]
    )

    log.clean()
    stamped = history(log)
    assert stamped.tombstone_goes_at_ms == log.now_ms + CONFIG.delete_retention_ms
    assert "goes with the first pass after 20" in stamped.fate[-1]
    assert offsets(stamped) == [(1, None)]

    log.now_ms += CONFIG.delete_retention_ms
    assert "expired at 20" in history(log).fate[-1]
    log.clean()
    assert history(log).is_gone
    assert "physically gone" in history(log).fate[0]


def test_a_tombstone_at_the_end_stays_until_something_follows() -> None:
    log = CompactedLog()
    log.append((b"a", None))

    last, waits, active = history(log).fate
    assert "stays until something follows it" in last
    assert "waits for a first pass over it" in waits
    assert active == (
        "offset 0 is in the active segment, which has to roll first:"
        " kompakt compact now orders-0 does both"
    )


def test_an_aborted_record_supersedes_nothing_and_an_open_one_waits() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    producer = TransactionalProducer(log, 7)
    producer.send((b"a", b"2"))
    producer.abort()
    producer.send((b"a", b"3"))

    found = history(log)

    assert offsets(found) == [(0, None), (1, None), (3, None)]
    assert "its last value, at offset 0, stays" in found.fate
    assert any("the still open transaction of producer 7: 1" in sentence for sentence in found.fate)
    assert any("1 aborted record goes with the next pass" in sentence for sentence in found.fate)


def test_what_is_left_below_the_clean_offset_was_committed() -> None:
    log = CompactedLog()
    producer = TransactionalProducer(log, 7)
    producer.send((b"a", b"1"))
    producer.commit()
    log.append((b"b", b"1"))
    log.clean()
    log.now_ms += CONFIG.delete_retention_ms
    log.clean()

    assert history(log).fate == ("its last value, at offset 0, stays",)


def test_a_tombstone_that_no_pass_may_reach_says_what_holds_it() -> None:
    log = CompactedLog(replace(CONFIG, min_compaction_lag_ms=10_000))
    log.append_segment((b"a", None), (b"b", b"1"))

    assert history(log).fate[-1] == (
        "no pass may reach offset 0 now: the dirty records are younger than min.compaction.lag.ms;"
        " see kompakt compact explain orders-0"
    )


def test_nothing_is_promised_of_a_log_that_is_not_compacted() -> None:
    log = CompactedLog(replace(CONFIG, cleanup_policy=("delete",), retention_ms=-1))
    log.append((b"a", b"1"), (b"a", b"2"))

    assert history(log).fate == ("cleanup.policy is delete: no pass drops any of them",)


def test_a_tombstone_that_is_held_says_by_whom() -> None:
    log = CompactedLog(replace(CONFIG, delete_retention_ms=0))
    log.append_segment((b"a", None), (b"b", b"1"))
    log.clean()
    log.now_ms += 1
    view = log.log.cleaning_view(as_if_rolled=True)
    meter = meter_of(log.log, view.generation)
    hold = Hold(offset=Offset(0), by="group __mirror.dr")

    found = find_key(view, b"a", log.settings, meter=meter, now_ms=log.now_ms, hold=hold)

    assert found.fate == (
        "its tombstone, at offset 0, stays: group __mirror.dr holds tombstones from offset 0 on",
    )


def test_a_value_says_when_it_expires() -> None:
    log = CompactedLog(replace(CONFIG, compaction_ttl_ms=5000, compaction_ttl_header="ttl"))
    log.append((b"a", b"1"))
    hit = history(log).records[0].hit

    assert hit.expires_ms == hit.timestamp + 5000
    assert history(log).fate == (
        "its last value, at offset 0, expired at 1970-01-01 00:00:06 UTC: the next sweep appends a"
        " tombstone for the key",
    )

    log.log.update_config(replace(log.log.config, compaction_ttl_ms=10**15))
    assert "expires at" in history(log).fate[0]
    log.log.update_config(replace(log.log.config, compaction_ttl_ms=-1))
    assert history(log).fate == ("its last value, at offset 0, stays",)
