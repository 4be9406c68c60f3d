"""Apache Kafka's own cleaner and ours leave the same of every profile; `make differential` does more.

The rows of `Reason` are explained in tests/cleaner/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.spark.jars import JarsUnavailable
from protocol.records.control_record import ControlType, TransactionMarker
from protocol.records.record_batch import Record, build_batch, build_control_batch
from storage.formats.log_config import LogConfig
from tests.differential.compare import values_of
from tests.differential.kompakt_log import KompaktLog
from tests.differential.run import TOPIC_CONFIG, run_workload
from tests.differential.workload import (
    DELETE_RETENTION_MS,
    PROFILES,
    START_MS,
    Profile,
    Workload,
)
from tests.harness.kafka_cleaner import KafkaCleaner


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCleaner]:
    try:
        cleaner = KafkaCleaner()
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with cleaner:
        yield cleaner


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_both_cleaners_leave_the_same(profile: Profile, kafka: KafkaCleaner) -> None:
    outcome = run_workload(Workload(profile=profile, codec=None, seed=1), kafka)

    assert outcome.unexplained == []
    assert 0 < outcome.records_left < outcome.records_appended


def data(offset: int, key: bytes, value: bytes | None, *, is_transactional: bool = True) -> bytes:
    """One record of the one producer, or of none."""
    record = Record(offset=offset, timestamp=START_MS, key=key, value=value)
    producer = (7, 0, offset) if is_transactional else (-1, -1, -1)
    return bytes(
        build_batch(
            [record],
            base_offset=offset,
            leader_epoch=0,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            is_transactional=is_transactional,
        )
    )


def marker(offset: int, verdict: ControlType) -> bytes:
    return bytes(
        build_control_batch(
            TransactionMarker(type=verdict, coordinator_epoch=0),
            offset=offset,
            timestamp=START_MS,
            producer_id=7,
            producer_epoch=0,
            leader_epoch=0,
        )
    )


def test_kafka_brings_a_deleted_key_back(kafka: KafkaCleaner) -> None:
    """A bug of Kafka's: this test fails once a later release has fixed it. Our cleaner does not have
    it."""
    batches = [
        data(0, b"deleted", b"old", is_transactional=False),
        data(1, b"aborted", b""),
        marker(2, ControlType.ABORT),
        *(data(offset, b"%d" % offset, b"", is_transactional=False) for offset in range(3, 17)),
        data(17, b"deleted", None),
        marker(18, ControlType.COMMIT),
    ]
    config = TOPIC_CONFIG | {"index.interval.bytes": "1"}
    ours = KompaktLog(LogConfig.from_overrides(config, LogConfig()), map_keys=16, now_ms=START_MS)
    kafka.new(config, map_keys=16, now_ms=START_MS)
    for side in (kafka, ours):
        for batch in batches:
            side.append(batch)
        for number in range(4):
            side.append(data(19 + number, b"last", b"", is_transactional=False))
            side.roll()
            side.set_clock(START_MS + number * 2 * DELETE_RETENTION_MS)
            side.clean(20)

    assert values_of(kafka.dump())["=" + b"deleted".hex()] == "=" + b"old".hex()
    assert "=" + b"deleted".hex() not in values_of(kafka.read(ours.batches()))
