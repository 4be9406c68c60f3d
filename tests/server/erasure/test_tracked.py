"""What follows from an erasure and the logs of its topic, of which some may be offline."""

from __future__ import annotations

import uuid

from server.erasure.erasure import ErasedPartition, Erasure, KeyClaim
from server.erasure.state_table import ErasureState
from server.erasure.tracked import Tracked, are_records_back
from server.topics.topic import OfflineLog, Topic
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from tests.harness.compacted_log import CONFIG, CompactedLog

TOPIC_ID = uuid.UUID(int=1)


def erased(*offsets: int) -> Tracked:
    """Returns an erasure whose tombstones are at these offsets, by partition."""
    return Tracked(
        Erasure(
            id="one",
            topic="people",
            topic_id=TOPIC_ID,
            requested_ms=0,
            deadline_ms=1,
            claim=KeyClaim(salt=b"", hash=b""),
            hashes={},
            partitions=tuple(ErasedPartition(offset, True) for offset in offsets),
            state=ErasureState.ERASED,
        )
    )


def topic_of(*logs: PartitionLog | OfflineLog) -> Topic:
    return Topic(name="people", id=TOPIC_ID, config=CONFIG, overrides={}, partitions=logs)


def log_of(records: int) -> PartitionLog:
    log = CompactedLog()
    log.append_segment(*((b"%d" % number, b"1") for number in range(records)))
    return log.log


def test_a_partition_that_cannot_be_opened_says_nothing_about_the_others() -> None:
    offline = OfflineLog(topic_partition=TopicPartition("people", 0), offline_reason="no disk")
    short = log_of(2)

    assert not are_records_back(erased(9, 1), topic_of(offline, short))
    assert are_records_back(erased(9, 5), topic_of(offline, short)), "it ends below its tombstone"
    assert not are_records_back(erased(9, 1), topic_of(log_of(10), short))
