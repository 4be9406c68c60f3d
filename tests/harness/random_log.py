"""Random compacted logs: tombstones, transactions, codecs; and what the local cleaner marks of them."""

from __future__ import annotations

from random import Random

from cleaner.index import IndexedSegment, SegmentIndex
from cleaner.kernel import OffsetMap
from cleaner.mark import DirtySection, KeyParts, Marked, dirty_section, mark_window
from cleaner.verify_pass import PassVerifier
from protocol.record_batch import Codec
from tests.harness.compacted_log import HASH_KEY, SETTINGS, CompactedLog, meter_of
from tests.harness.log_builder import KeyValue
from tests.harness.transactional_producer import TransactionalProducer

PRODUCERS = 3


def random_log(
    random: Random,
    *,
    batches: int,
    keys: int,
    transactions: bool = True,
    into: CompactedLog | None = None,
) -> CompactedLog:
    """A log, or one more part of a log, of so many batches, in segments of a few."""
    log = into or CompactedLog()
    first = log.log.log_end_offset
    producers = [TransactionalProducer(log, first + number) for number in range(PRODUCERS)]
    for _ in range(batches):
        pairs = [random_pair(random, keys) for _ in range(random.randint(1, 4))]
        fate = random.random()
        producer = random.choice(producers)
        if not transactions or fate < 0.4:
            log.append(*pairs, codec=random.choice(list(Codec)))
        elif fate < 0.7:
            producer.send(*pairs)
        elif fate < 0.85:
            producer.commit()
        else:
            producer.abort()
        if random.random() < 0.15:
            log.roll()
    log.roll()
    return log


def random_pair(random: Random, keys: int) -> KeyValue:
    return b"%d" % random.randrange(keys), None if random.random() < 0.1 else b"v"


def local_marks(
    log: CompactedLog, start_offset: int
) -> tuple[tuple[IndexedSegment, ...], DirtySection, list[Marked]]:
    """The segments with their sidecars, the dirty section, and what the cleaner marks."""
    meter = meter_of(log.log, log.log.generation)
    segments = SegmentIndex(HASH_KEY, SETTINGS, meter).of(log.log.cleaning_view().segments)
    section = dirty_section(segments, start_offset=start_offset, end_offset=log.log.log_end_offset)
    parts = KeyParts(section, OffsetMap(24 * 10_000, HASH_KEY))
    verifier = PassVerifier(SETTINGS, meter=meter, monotonic=lambda: 0.0)
    return segments, section, mark_window(segments, section, parts, verifier)
