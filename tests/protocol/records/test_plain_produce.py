"""The compiled reader of plain requests and batches, against the specification, which reads all."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch_header import HEADER_BYTES, BatchHeader, seal
from protocol.records.codec import Codec
from protocol.records.plain_produce import check_plain_batch, read_plain_produce
from protocol.wire.errors import ProtocolError
from protocol.wire.request import parse_request
from storage.batches.validate import Refused, ValidationRules, ValidBatch, validate_batch
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from tests.harness.examples import examples
from tests.harness.log_builder import batch_of
from tests.harness.raw_client import encode_request

TOPIC_ID = uuid.UUID(int=(1 << 100) + 7)
RECORDS = memoryview(b"records")


def request_of(**changed: Any) -> ProduceRequest:
    """Returns a plain request, except for what is changed."""
    names = {key: changed.pop(key) for key in ("index", "records") if key in changed}
    of_partition: dict[str, Any] = {"index": 3, "records": RECORDS}
    data = PartitionProduceData(**of_partition | names)
    topic = TopicProduceData(name="orders", topic_id=TOPIC_ID, partition_data=(data,))
    fields: dict[str, Any] = {"acks": 1, "timeout_ms": 9, "topic_data": (topic,)}
    return ProduceRequest(**fields | changed)


def frame_of(request: ProduceRequest, version: int, correlation_id: int = 7) -> bytearray:
    return bytearray(encode_request(request, version, correlation_id))


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(5, 14))
def test_a_plain_request_is_read_as_the_specification_reads_it(version: int, acks: int) -> None:
    frame = frame_of(request_of(acks=acks), version, correlation_id=-5)
    found = read_plain_produce(frame)
    assert found is not None
    assert (found.api_version, found.correlation_id, found.acks) == (version, -5, acks)
    assert found.topic == (TOPIC_ID.bytes if version >= 13 else b"orders")
    assert found.partition == 3
    assert frame[found.records_start : found.records_end] == RECORDS


TWO_PARTITIONS = TopicProduceData(
    name="orders",
    topic_id=TOPIC_ID,
    partition_data=(PartitionProduceData(index=0, records=RECORDS),) * 2,
)


@pytest.mark.parametrize(
    "changed",
    [
        {"acks": 0},
        {"acks": 2},
        {"transactional_id": "t"},
        {"records": None},
        {"records": memoryview(b"")},
        {"topic_data": ()},
        {"topic_data": (TWO_PARTITIONS,)},
        {"topic_data": (replace(TWO_PARTITIONS, partition_data=()),)},
        {"topic_data": request_of().topic_data * 2},
    ],
    ids=[
        "acks=0",
        "acks=2",
        "transaction",
        "null records",
        "no records",
        "no topic",
        "two partitions",
        "no partition",
        "two topics",
    ],
)
@pytest.mark.parametrize("version", range(5, 14))
def test_any_other_request_is_not_plain(version: int, changed: dict[str, Any]) -> None:
    assert read_plain_produce(frame_of(request_of(**changed), version)) is None


@pytest.mark.parametrize("client_id", [b"\xff\xfe", "\u0119".encode(), b"ascii\x80"])
def test_a_client_id_that_is_not_ascii_is_not_plain(client_id: bytes) -> None:
    frame = frame_of(request_of(), 5)
    size = int.from_bytes(frame[8:10], "big", signed=True)
    changed = frame[:8] + len(client_id).to_bytes(2, "big") + client_id + frame[10 + max(size, 0) :]
    ascii_only = frame[:8] + b"\x00\x02ab" + frame[10 + max(size, 0) :]
    assert read_plain_produce(ascii_only) is not None
    assert read_plain_produce(changed) is None


@pytest.mark.parametrize("version", [3, 4, 14])
def test_other_versions_are_not_plain(version: int) -> None:
    frame = frame_of(request_of(), 5)
    frame[2:4] = version.to_bytes(2, "big")
    assert read_plain_produce(frame) is None


MUTATIONS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4)


@given(st.integers(5, 13), MUTATIONS, st.integers(0, 12), st.binary(max_size=3))
@settings(max_examples=examples(1_000))
def test_what_is_read_of_a_changed_frame_is_what_the_specification_reads(
    version: int, mutations: list[tuple[int, int]], cut: int, behind: bytes
) -> None:
    frame = frame_of(request_of(), version)
    for position, value in mutations:
        frame[position % len(frame)] = value
    frame = frame[: len(frame) - cut] + behind
    found = read_plain_produce(frame)
    if found is None:
        return
    try:
        request = parse_request(frame)
    except (ProtocolError, UnicodeDecodeError):
        # Nothing exists by a name that is not UTF-8, so the caller finds no topic.
        assert not found.topic.isascii()
        return
    body = request.body
    assert isinstance(body, ProduceRequest)
    assert (request.header.api_version, request.header.correlation_id) == (
        found.api_version,
        found.correlation_id,
    )
    assert (request.surplus_bytes, body.transactional_id, body.acks) == (0, None, found.acks)
    (topic,) = body.topic_data
    (data,) = topic.partition_data
    named = topic.topic_id.bytes if found.api_version >= 13 else topic.name.encode()
    assert (named, data.index) == (found.topic, found.partition)
    assert data.records is not None
    assert bytes(data.records) == frame[found.records_start : found.records_end]


# ---------------------------------------------------------------- batches

NOW_MS = 100_000
CONFIG = LogConfig()
WINDOW_MS = 50_000


def rules_of(*, keyed: bool, windowed: bool) -> ValidationRules:
    config = replace(CONFIG, cleanup_policy=("compact",) if keyed else ("delete",))
    if windowed:
        config = replace(
            config,
            message_timestamp_before_max_ms=WINDOW_MS,
            message_timestamp_after_max_ms=WINDOW_MS,
        )
    return ValidationRules(TopicPartition("orders", 0), config, NOW_MS)


def checked(batch: bytearray, rules: ValidationRules) -> BatchHeader | None:
    timestamp_from, timestamp_to = rules.timestamp_bounds
    found = check_plain_batch(
        batch,
        keyed=rules.config.is_compacted,
        timestamp_from=timestamp_from,
        timestamp_to=timestamp_to,
    )
    return None if found is None else BatchHeader(**found)


VALUES = st.none() | st.binary(max_size=12)
TIMES = st.sampled_from((-1, 0, 1_000, 49_999, 50_000, NOW_MS, 150_000, 150_001, 1 << 62))
PRODUCERS = st.sampled_from(((-1, -1, -1), (7, 0, 0), (7, 3, 9), (7, -1, 0), (7, 0, -1)))


@given(
    st.lists(st.tuples(VALUES, VALUES, TIMES), min_size=1, max_size=5),
    PRODUCERS,
    st.sampled_from((Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=2),
    st.booleans(),
)
@settings(max_examples=examples(1_500))
def test_a_plain_batch_is_valid_as_it_is_and_all_such_batches_are_plain(
    records: list[tuple[bytes | None, bytes | None, int]],
    producer: tuple[int, int, int],
    codec: Codec,
    is_transactional: bool,
    keyed: bool,
    windowed: bool,
    mutations: list[tuple[int, int]],
    is_sealed: bool,
) -> None:
    producer_id, producer_epoch, base_sequence = producer
    batch = batch_of(
        [(key, value) for key, value, _ in records],
        timestamps=[time for _, _, time in records],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    for position, value in mutations:
        batch[position % len(batch)] = value
    if is_sealed:
        seal(batch)
    rules = rules_of(keyed=keyed, windowed=windowed)
    before = bytes(batch)
    plain = checked(batch, rules)
    assert batch == before
    verdict = validate_batch(memoryview(batch), rules)
    if plain is not None:
        assert isinstance(verdict, ValidBatch)
        assert verdict.header == plain
        assert batch == before, "it needed no change"
    elif isinstance(verdict, ValidBatch):
        is_changed = batch != before
        assert is_changed or verdict.header.attributes or not verdict.header.record_count
    else:
        assert isinstance(verdict, Refused)


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1, HEADER_BYTES])
def test_a_batch_without_records_is_not_plain(size: int) -> None:
    batch = batch_of([(b"k", b"v")])[:size]
    assert checked(batch, rules_of(keyed=False, windowed=False)) is None
