"""Random compacted logs with tombstones, transactions and codecs; and the local cleaner's marks on
them."""

from __future__ import annotations

from random import Random

from cleaner.kernel.kernel import OffsetMap
from cleaner.passes.dirty_section import DirtySection, dirty_section
from cleaner.passes.index import IndexedSegment, SegmentIndex
from cleaner.passes.key_parts import KeyParts
from cleaner.passes.mark import Marked, mark_window
from cleaner.passes.verify_pass import PassVerifier
from protocol.records.record_batch import Codec
from protocol.wire.numbers import Offset
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
    """Returns a log, or extends one, with `batches` batches, a few per segment."""
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
    """Returns the segments with their sidecars, the dirty section, and the cleaner's marks."""
    meter = meter_of(log.log, log.log.generation)
    segments = SegmentIndex(HASH_KEY, SETTINGS, meter).index_segments(
        log.log.cleaning_view().segments
    )
    section = dirty_section(
        segments, start_offset=Offset(start_offset), end_offset=log.log.log_end_offset
    )
    parts = KeyParts(section, OffsetMap(24 * 10_000, HASH_KEY))
    verifier = PassVerifier(SETTINGS, meter=meter, monotonic=lambda: 0.0)
    return segments, section, mark_window(segments, section, parts, verifier)
