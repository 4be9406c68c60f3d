"""Which records without a key a pass moves to another topic, and in which form. Pure.

A topic can hold records without a key from before it was compacted. If `compaction.unkeyed.records` is
`move`, a pass appends those that it would drop to the topic of `compaction.unkeyed.topic`, before it
drops them: the records of `Verdict.DROPPED_UNKEYED` (`record_verdict.py`), no more and no less.

    timestamp   when it was moved, so that the retention of the other topic counts from then on
    key         none
    value       as it was
    headers     as they were, and after them where it comes from, each as text:
                    kompakt.origin.topic        its name
                    kompakt.origin.topic.id     its id, which a topic of the same name does not have
                    kompakt.origin.partition
                    kompakt.origin.offset
                    kompakt.origin.timestamp    in ms since 1970

A pass that is interrupted after it has moved records, and before it has dropped them, moves them again:
records with the same id, partition and offset are the same record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from cleaner.rules.record_verdict import AbortedTransaction, RecordBatch
from protocol.records.record import Record
from storage.files.paths import topic_id_text
from storage.formats.topic_partition import TopicPartition

ORIGIN = "kompakt.origin."


class UnkeyedRule:
    """Selects what a pass moves."""

    __slots__ = ("_aborted", "_end_offset")

    def __init__(self, *, end_offset: int, aborted: Iterable[AbortedTransaction]) -> None:
        """
        Args:
            end_offset: where the pass ends; batches that reach beyond it are not judged, and the last
                record below it stays.
            aborted: the aborted transactions of the dirty section.
        """
        self._end_offset = end_offset
        self._aborted: Mapping[int, list[AbortedTransaction]] = defaultdict(list)
        for each in aborted:
            self._aborted[each.producer_id].append(each)

    def may_move(self, header: RecordBatch) -> bool:
        """Returns whether records without a key in a batch are moved."""
        if header.is_control or header.last_offset >= self._end_offset:
            return False
        aborted = self._aborted.get(header.producer_id, ())
        return not any(each.holds(header) for each in aborted)

    def moved(self, header: RecordBatch, records: Sequence[Record]) -> list[Record]:
        """Returns those of a batch's records that are moved."""
        if not self.may_move(header):
            return []
        is_tail = header.last_offset == self._end_offset - 1
        judged = records[:-1] if is_tail else records
        return [record for record in judged if record.key is None]


def with_origin(record: Record, log: TopicPartition, topic_id: UUID, *, now_ms: int) -> Record:
    """Returns a record as it is moved."""
    origin = {
        "topic": log.topic,
        "topic.id": topic_id_text(topic_id),
        "partition": log.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    added = tuple((ORIGIN + name, str(value).encode()) for name, value in origin.items())
    return replace(record, timestamp=now_ms, headers=(*record.headers, *added))
