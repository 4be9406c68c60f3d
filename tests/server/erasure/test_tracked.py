"""What follows from an erasure and the logs of its topic, of which some may be offline."""

from __future__ import annotations

import uuid
from dataclasses import replace

from server.erasure.erasure import ErasedPartition, Erasure, KeyClaim
from server.erasure.state_table import ErasureState
from server.erasure.tracked import Tracked, are_records_back, oldest_final
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


def final(ended_ms: int, size: int, name: str = "") -> Tracked:
    erasure = replace(erased(0).erasure, id=name or str(ended_ms))
    return Tracked(
        erasure.moved_to(ErasureState.COMPLETE, ended_ms),
        stored_bytes=size,
    )


def test_the_oldest_final_erasures_go_beyond_a_count_and_beyond_a_size() -> None:
    ended = [final(3, 40), final(1, 10), erased(7), final(2, 50)]

    def gone(count_max: int, bytes_max: int) -> list[str]:
        return [each.id for each in oldest_final(ended, count_max=count_max, bytes_max=bytes_max)]

    assert gone(3, 100) == []
    assert gone(2, 100) == ["1"]
    assert gone(3, 99) == ["1"]
    assert gone(3, 89) == ["2", "1"]
    assert gone(3, 1) == ["2", "1"], "the newest stays, with its certificate"

    tied = [final(4, 10, "older"), final(4, 10, "newer")]
    assert [each.id for each in oldest_final(tied, count_max=1, bytes_max=100)] == ["older"]
