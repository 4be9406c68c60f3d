"""A link's requests to its source as Kafka's messages, and their answers.

A source speaks Fetch 12 or later (Kafka 2.7): older ones cannot say where logs diverge.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.replication.findings import UNKNOWN, SourceAnswer
from server.replication.slot_content import SlotContent
from storage.files.files import Buffer
from storage.formats.topic_partition import TopicPartition
from storage.state.leader_epochs import UNKNOWN_END, EpochEnd

EARLIEST, LATEST = -2, -1
"""The timestamps of ListOffsets for a log's start and its high watermark."""
CONSUMER = -1


class Asked(NamedTuple):
    """From where on to fetch one partition, and what the source has said last."""

    partition: TopicPartition
    topic_id: uuid.UUID
    end: Offset
    last_epoch: Epoch
    """-1: do not compare."""
    before: Fetched | None = None
    """The last answer, if it has to be compared with the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The answer about one partition."""

    answer: SourceAnswer
    records: Buffer
    """Batches; the last one may be cut off. Part of the answer's frame."""
    is_complete: bool
    """Whether no partition before it in the answer has records."""
    is_alone: bool = False
    """Whether only this partition was asked for. Only then no records up to the high watermark means
    that there are none: a source may read what was written while it waited in any order, so a partition
    behind may have taken the room."""
    gap_epoch: Epoch | None = None
    """The source's epoch just before its high watermark, if no records are left up to there
    (`gap_epoch.py`)."""

    @property
    def has_no_more(self) -> bool:
        """Whether the source seems to have nothing from where it was asked up to its high watermark."""
        return self.is_complete and not len(self.records) and not self.answer.error_code

    def seems_to_have_gap_from(self, end: Offset) -> bool:
        """Returns whether there may be no record from `end` up to the source's high watermark above."""
        return self.has_no_more and self.answer.high_watermark > end

    def has_gap_from(self, end: Offset) -> bool:
        """Returns whether the source has no record from `end` up to its high watermark above."""
        return self.is_alone and self.seems_to_have_gap_from(end)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchBounds:
    """How large answers may be, and how long the source may wait for records."""

    wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


def fetch_request(asked: Sequence[Asked], bounds: FetchBounds) -> FetchRequest:
    """Returns the request for what follows in these partitions, in this order."""
    by_topic: dict[tuple[str, uuid.UUID], list[FetchPartition]] = {}
    for each in asked:
        by_topic.setdefault((each.partition.topic, each.topic_id), []).append(
            FetchPartition(
                partition=each.partition.partition,
                fetch_offset=each.end,
                last_fetched_epoch=each.last_epoch,
                partition_max_bytes=bounds.partition_max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=bounds.wait_ms,
        min_bytes=bounds.min_bytes,
        max_bytes=bounds.max_bytes,
        topics=tuple(
            FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(partitions))
            for (name, topic_id), partitions in by_topic.items()
        ),
    )


def fetch_answers(asked: Iterable[Asked], response: FetchResponse) -> dict[TopicPartition, Fetched]:
    """Returns the answers about these partitions; partitions that were not asked for are left out.

    Behind a partition with records another one may be empty only because there was no room.
    """
    asked = list(asked)
    by_name: dict[str, dict[int, Asked]] = {}
    for each in asked:
        by_name.setdefault(each.partition.topic, {})[each.partition.partition] = each
    # From version 13 on answers have ids, before that names. A source before Kafka 2.8 has no ids: all
    # are zero. To compare ids takes long, so each is looked up once.
    by_id = {next(iter(known.values())).topic_id: known for known in by_name.values()}
    found: dict[TopicPartition, Fetched] = {}
    is_first = True
    for topic in response.responses:
        known = by_name.get(topic.topic) if topic.topic else by_id.get(topic.topic_id)
        for data in topic.partitions:
            of = None if known is None else known.get(data.partition_index)
            if of is not None:
                if is_first and of.before is not None and _repeats(data, of.before):
                    found[of.partition] = of.before
                else:
                    found[of.partition] = _fetched(
                        data, is_complete=is_first, is_alone=len(asked) == 1
                    )
            is_first = is_first and not data.records
    return found


def _repeats(data: PartitionData, before: Fetched) -> bool:
    """Returns whether an answer says what a complete one without records said before."""
    answer = before.answer
    return (
        not data.records
        and not data.error_code
        and data.high_watermark == answer.high_watermark
        and data.log_start_offset == answer.start
        and data.diverging_epoch.end_offset == -1
    )


def _fetched(data: PartitionData, *, is_complete: bool, is_alone: bool) -> Fetched:
    diverging = data.diverging_epoch
    answer = SourceAnswer(
        error_code=data.error_code,
        start=Offset(data.log_start_offset) if not data.error_code else UNKNOWN,
        high_watermark=Offset(data.high_watermark),
        diverging=(Epoch(diverging.epoch), Offset(diverging.end_offset))
        if diverging.end_offset != -1
        else None,
    )
    records = data.records if data.records is not None else b""
    assert isinstance(records, bytes | bytearray | memoryview)
    return Fetched(answer=answer, records=records, is_complete=is_complete, is_alone=is_alone)


def epoch_request(partition: TopicPartition, epoch: Epoch) -> OffsetForLeaderEpochRequest:
    """Returns the request for where the largest epoch up to this one ends."""
    asked = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=epoch)
    topic = OffsetForLeaderTopic(topic=partition.topic, partitions=(asked,))
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=(topic,))


def epoch_answer(response: OffsetForLeaderEpochResponse) -> EpochEnd:
    """Returns the epoch and its end; (-1, -1) if the source does not know it or refuses."""
    found = [each for topic in response.topics for each in topic.partitions if not each.error_code]
    return (Epoch(found[0].leader_epoch), Offset(found[0].end_offset)) if found else UNKNOWN_END


def offsets_request(partitions: Iterable[TopicPartition], timestamp: int) -> ListOffsetsRequest:
    """Returns the request for where these partitions start (EARLIEST) or end (LATEST)."""
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(
            ListOffsetsPartition(partition_index=each.partition, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=tuple(
            ListOffsetsTopic(name=name, partitions=tuple(asked)) for name, asked in by_topic.items()
        ),
    )


def offsets_answer(response: ListOffsetsResponse) -> dict[TopicPartition, Offset]:
    """Returns the offsets of the partitions without an error."""
    return {
        TopicPartition(topic.name, each.partition_index): Offset(each.offset)
        for topic in response.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE and each.offset >= 0
    }


def slot_request(
    group: str,
    slots: Mapping[TopicPartition, SlotContent],
    topic_ids: Mapping[str, uuid.UUID],
) -> OffsetCommitRequest:
    """Returns the commit of slots."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, slot in slots.items():
        by_topic.setdefault(partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=slot.offset,
                committed_metadata=slot.metadata(),
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        topics=tuple(
            OffsetCommitRequestTopic(name=name, topic_id=topic_ids[name], partitions=tuple(each))
            for name, each in by_topic.items()
        ),
    )


def slot_errors(
    response: OffsetCommitResponse, names: Mapping[uuid.UUID, str]
) -> dict[TopicPartition, int]:
    """Returns the error code of each slot; 0 for those that the source has."""
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), each.partition_index): (
            each.error_code
        )
        for topic in response.topics
        for each in topic.partitions
    }
