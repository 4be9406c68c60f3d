"""The logs for the race tests."""

from __future__ import annotations

from dataclasses import replace

from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.log_builder import KeyValue
from tests.harness.transactional_producer import TransactionalProducer

RACE_CONFIG = replace(CONFIG, segment_bytes=200)


def uncleaned_log() -> CompactedLog:
    """Returns seven sealed segments, with superseded values, tombstones and producers."""
    log = CompactedLog(RACE_CONFIG)
    segments: list[list[list[KeyValue]]] = [
        [[(b"a", b"1"), (b"b", b"1")], [(b"c", b"1")]],
        [[(b"a", b"2")], [(b"d", b"1"), (b"d", b"2")]],
        [[(b"b", None)], [(b"e", b"1")]],
        [[(b"c", b"2"), (b"f", b"1" * 90)]],
        [[(b"a", b"3"), (b"g", b"1")], [(b"f", None)]],
        [[(b"h", b"1"), (b"g", b"2")]],
        [[(b"d", None), (b"a", b"4"), (b"i", b"1")]],
    ]
    for number, batches in enumerate(segments):
        for pairs in batches:
            # The producers of the odd segments never write again, so their last batches must stay.
            is_idempotent = number % 2 == 1
            log.append(
                *pairs,
                producer_id=log.log.log_end_offset if is_idempotent else -1,
                producer_epoch=0 if is_idempotent else -1,
                base_sequence=0 if is_idempotent else -1,
            )
        log.now_ms += 100
        log.roll()
    return log


def log_with_horizons_due() -> CompactedLog:
    """Returns the same log after a pass, dirty again, with tombstones whose horizon has passed."""
    log = uncleaned_log()
    log.clean_until_idle()
    log.now_ms += CONFIG.delete_retention_ms
    log.append_segment((b"c", b"3"), (b"h", None), (b"j", b"1"))
    return log


def log_of_transactions() -> CompactedLog:
    """Returns committed and aborted transactions over several segments, between plain batches."""
    log = CompactedLog(RACE_CONFIG)
    one, two, three = (TransactionalProducer(log, number) for number in (1, 2, 3))
    one.send((b"a", b"1"), (b"b", b"1"))
    one.commit()
    log.roll()
    log.append((b"a", b"2"))
    two.send((b"d", b"1"), (b"d", b"2"))
    log.roll()
    two.abort()
    one.send((b"b", None))
    log.roll()
    log.append((b"c", b"2"), (b"f", b"1" * 90))
    log.roll()
    three.send((b"a", b"3"), (b"g", b"1"))
    one.commit()
    log.roll()
    log.append((b"h", b"1"), (b"g", b"2"))
    log.roll()
    three.abort()
    log.append_segment((b"a", b"4"), (b"i", b"1"))
    # Markers have the broker's time: set it so that retention finds all records old.
    log.now_ms += 700
    return log


LOGS = {
    "uncleaned": uncleaned_log,
    "horizons_due": log_with_horizons_due,
    "transactions": log_of_transactions,
}
