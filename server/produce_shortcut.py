"""Appends a plain Produce in the callback that received it: no task, no queue of requests.

    frame -> read_plain_produce -> log -> check_plain_batch -> append -> answer, packed
                 | None            | anything unusual: None
                 the ordinary path: `server/dispatch.py`, `server/handlers/produce.py`

The ordinary path is the specification: it answers what is refused, fails, waits or needs a permission.
So nothing may have happened when this path gives a request up. `protocol/records/plain_produce.pyi`
says which requests are plain; `tests/server/test_produce_shortcut.py` compares both paths.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.batch_header import BatchHeader
from protocol.records.codec import Codec
from protocol.records.plain_produce import PlainProduce, check_plain_batch, read_plain_produce
from protocol.records.record_walk import TIMESTAMP_MAX, TIMESTAMP_MIN
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.request import RequestHeader
from protocol.wire.response import encode_response
from protocol.wire.value_class import value_class
from server.topics.topic import Topic
from storage.batches.validate import Refused, ValidBatch
from storage.files.errors import StorageError
from storage.formats.log_config import LogConfig
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.threads import loop_thread

if TYPE_CHECKING:
    from server.broker import Broker
    from server.net.connection import Connection

FRAME_BYTES_MAX = 64 << 10
"""Larger frames take the ordinary path: their cost is in their bytes."""
IDS_SINCE = 13
ACKS_ALL = -1
NAME = APIS[ApiKey.PRODUCE].name

TEMPLATES_MAX = 10_000
CORRELATION_ID = struct.Struct(">i")
CORRELATION_ID_AT = 4
PARTITION = struct.Struct(">ihqqq")
"""In an answer: index, error code, base offset, time of the append, log start offset."""
MARKS = (0x51525354, 0, 0x6162636465666768, -1, 0x7172737475767778)


@value_class
class Done:
    """An append, and its answer."""

    answer: bytearray
    start_s: float
    request: PlainProduce
    log: PartitionLog
    next_offset: int


@dataclass(slots=True)
class _Template:
    """The answer to a plain request about one topic, in one version: only a few numbers are missing."""

    name: str
    topic_id: uuid.UUID
    answer: bytes
    partition_at: int
    """Where the numbers of `PARTITION` are."""
    config: LogConfig | None = None
    """The configuration from which the next two follow."""
    is_usual: bool = False
    """Whether the topic stores batches as they come, with the producers' times."""
    keyed: bool = False
    """Whether its records need keys."""

    def follow(self, config: LogConfig) -> None:
        """Take the topic's configuration, which seldom changes."""
        if self.config is config:
            return
        self.config, self.keyed = config, config.is_compacted
        stored = config.stored_codec
        self.is_usual = not (
            config.is_mirror
            or config.is_log_append_time
            or (stored is not None and stored.codec is not Codec.NONE)
            or config.min_insync_replicas > 1
        )

    def answer_to(
        self, request: PlainProduce, base_offset: int, log_start_offset: int
    ) -> bytearray:
        """Returns the answer to a request whose batch was appended."""
        answer = bytearray(self.answer)
        CORRELATION_ID.pack_into(answer, CORRELATION_ID_AT, request.correlation_id)
        numbers = request.partition, ErrorCode.NONE, base_offset, -1, log_start_offset
        PARTITION.pack_into(answer, self.partition_at, *numbers)
        return answer


@loop_thread
class ProduceShortcut:
    """The second path of Produce, for one broker."""

    __slots__ = ("_broker", "_templates")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._templates: dict[tuple[int, bytes], _Template] = {}

    def append(self, frame: bytearray, connection: Connection) -> Done | None:
        """Append the batch of a plain request. Returns None if the request must take the ordinary path;
        then nothing has happened.

        The caller owns the frame, and no earlier request of the connection is running or waiting.
        """
        if connection.sasl is not None or len(frame) > FRAME_BYTES_MAX or self._has_rules:
            return None
        start_s = time.perf_counter()
        request = read_plain_produce(frame)
        template = None if request is None else self._template(request)
        if request is None or template is None:
            return None
        log = self._usual_log(request, template)
        if log is None:
            return None
        view = memoryview(frame)[request.records_start : request.records_end]
        now_ms = self._broker.clock.now_ms()
        batch = _checked(view, template, log.config, now_ms)
        appended = None if batch is None else _appended(log, batch, now_ms)
        if batch is None or appended is None:
            return None
        if not appended.duplicate:
            self._broker.group_commit.appended(log)
            header = batch.header
            self._broker.probe.batch_appended(template.name, header.record_count, header.size_bytes)
        answer = template.answer_to(request, appended.base_offset, log.log_start_offset)
        return Done(answer, start_s, request, log, appended.next_offset)

    def answer_of(self, done: Done) -> bytearray | None:
        """Returns the answer to a request with acks=1; None if it has to wait for the disk."""
        if done.request.acks == ACKS_ALL:
            return None
        self._completed(done)
        return done.answer

    def when_durable(self, done: Done, then: Callable[[bytes | bytearray], None]) -> None:
        """Call `then` with the answer once the append is durable, or has failed to become so."""

        def ended(is_durable: bool) -> None:
            then(done.answer if is_durable else self._failed(done))
            self._completed(done)

        self._broker.group_commit.when_durable(done.log, done.next_offset, ended)

    def start_round(self) -> None:
        """Start a round of syncs, because a request waits for it."""
        self._broker.group_commit.start_round_now()

    def _completed(self, done: Done) -> None:
        """Count a request whose answer is ready."""
        self._broker.probe.request_completed(NAME, time.perf_counter() - done.start_s)

    # ---------------------------------------------------------------- what is usual

    @property
    def _has_rules(self) -> bool:
        """Whether requests need more than an append: a permission, a quota, or a refusal."""
        broker = self._broker
        return broker.authorizer is not None or broker.fence is not None or broker.quotas.are_set

    def _usual_log(self, request: PlainProduce, template: _Template) -> PartitionLog | None:
        """Returns the log of a plain request's partition; None if it cannot take the batch at once, or
        changes batches."""
        topics = self._broker.topics
        topic: Topic | None
        if request.api_version >= IDS_SINCE:
            topic = topics.by_id(template.topic_id)
        else:
            topic = topics.get(template.name)
        if topic is None or topic.is_internal:
            return None
        log = topic.partition(request.partition)
        if isinstance(log, ErrorCode) or not log.new_files.are_made:
            return None
        template.name = topic.name
        template.follow(log.config)
        return log if template.is_usual else None

    # ---------------------------------------------------------------- answers

    def _template(self, request: PlainProduce) -> _Template | None:
        key = (request.api_version, request.topic)
        found = self._templates.get(key)
        if found is not None:
            return found
        try:
            made = _made_template(request)
        except UnicodeDecodeError:
            return None
        if len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        self._templates[key] = made
        return made

    def _failed(self, done: Done) -> bytes:
        """Returns the answer to a request whose append could not become durable."""
        error = ErrorCode.KAFKA_STORAGE_ERROR
        response = PartitionProduceResponse(
            index=done.request.partition,
            error_code=error,
            base_offset=-1,
            error_message=error.message,
        )
        template = self._template(done.request)
        assert template is not None, "the request was plain"
        return _encoded(done.request, template.name, template.topic_id, response)


def _checked(
    view: memoryview, template: _Template, config: LogConfig, now_ms: int
) -> ValidBatch | None:
    """Returns the batch if it is plain and the topic takes it as it is."""
    if len(view) > config.max_message_bytes:
        return None
    found = check_plain_batch(
        view,
        keyed=template.keyed,
        timestamp_from=max(TIMESTAMP_MIN, now_ms - config.message_timestamp_before_max_ms),
        timestamp_to=min(TIMESTAMP_MAX, now_ms + config.message_timestamp_after_max_ms),
    )
    return None if found is None else ValidBatch(BatchHeader(**found), view)


def _appended(log: PartitionLog, batch: ValidBatch, now_ms: int) -> Appended | None:
    """Returns None if the log refuses the batch or its disk fails: then nothing of it is in the log, and
    the ordinary path tries again, and reports it."""
    try:
        appended = log.appender.append_as_leader(batch, now_ms=now_ms)
    except StorageError:
        return None
    return None if isinstance(appended, Refused) else appended


def _made_template(request: PlainProduce) -> _Template:
    has_id = request.api_version >= IDS_SINCE
    name = "" if has_id else request.topic.decode()
    topic_id = uuid.UUID(bytes=request.topic) if has_id else uuid.UUID(int=0)
    index, error_code, base_offset, time_ms, log_start_offset = MARKS
    response = PartitionProduceResponse(
        index=index,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=time_ms,
        log_start_offset=log_start_offset,
    )
    answer = _encoded(request, name, topic_id, response)
    partition_at = answer.rindex(PARTITION.pack(*MARKS))
    return _Template(name, topic_id, answer, partition_at)


def _encoded(
    request: PlainProduce, name: str, topic_id: uuid.UUID, response: PartitionProduceResponse
) -> bytes:
    header = RequestHeader(
        api_key=ApiKey.PRODUCE,
        api_version=request.api_version,
        correlation_id=request.correlation_id,
        client_id=None,
    )
    topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=(response,))
    parts = encode_response(header, ProduceResponse(responses=(topic,)))
    return b"".join(cast("list[bytes]", parts))
