"""Appends a plain Produce in the callback that received it: no task, no queue of requests.

    frame -> read_plain_produce -> log -> check_plain_batch -> append -> answer, packed
                 | None            | anything unusual: None
                 the ordinary path: `server/dispatch.py`, `server/handlers/produce.py`

The ordinary path is the specification: it answers what is refused, waits or needs a permission. So
nothing may have happened when this path hands a request over. `protocol/records/plain_produce.pyi`
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
    ACKS_ALL,
    IDS_SINCE,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.batch_header import BatchHeader
from protocol.records.codec import Codec
from protocol.records.plain_produce import PlainProduce, check_plain_batch, read_plain_produce
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.request import RequestHeader
from protocol.wire.response import encode_response
from protocol.wire.value_class import value_class
from server.request_context import error_code_of
from server.topics.topic import Topic
from storage.batches.validate import AT_ONCE_BYTES_MAX, Refused, ValidBatch
from storage.files.errors import StorageError
from storage.formats.log_config import LogConfig
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.threads import loop_thread

if TYPE_CHECKING:
    from server.broker import Broker
    from server.net.connection import Connection

PLAIN_FRAME_BYTES_MAX = AT_ONCE_BYTES_MAX
"""The ordinary path checks the batches of larger frames in a thread."""
NAME = APIS[ApiKey.PRODUCE].name

TEMPLATES_MAX = 10_000
CORRELATION_ID = struct.Struct(">i")
CORRELATION_ID_AT = 4
PARTITION = struct.Struct(">ihqqq")
"""In an answer: index, error code, base offset, time of the append, log start offset."""
MARKS = (0x51525354, 0, 0x6162636465666768, -1, 0x7172737475767778)


@value_class
class Done:
    """A request that was carried out, and its answer."""

    answer: bytes | bytearray
    start_s: float
    request: PlainProduce
    topic: Topic
    log: PartitionLog
    next_offset: int
    """What has to be durable before the answer is sent."""
    waits: bool
    """Whether the answer waits for the disk."""


@dataclass(slots=True)
class _Template:
    """The answer to a plain request about one topic, in one version: only a few numbers are missing."""

    answer: bytes
    partition_at: int
    """Where the numbers of `PARTITION` are."""
    config: LogConfig | None = None
    """The configuration from which the next two follow."""
    takes_plain_batches: bool = False
    """Whether the topic stores them as they come, with the producers' times."""
    keyed: bool = False
    """Whether its records need keys."""

    def follow(self, config: LogConfig) -> None:
        """Take the topic's configuration, which seldom changes."""
        if self.config is config:
            return
        self.config, self.keyed = config, config.is_compacted
        stored = config.stored_codec
        self.takes_plain_batches = not (
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
        # Of existing topics only: clients choose the names in their requests.
        self._templates: dict[tuple[int, bytes], _Template] = {}

    def append(self, frame: bytearray, connection: Connection) -> Done | None:
        """Append the batch of a plain request. Returns None if the request must take the ordinary path;
        then nothing has happened.

        The caller owns the frame, and no earlier request of the connection is running or waiting.
        """
        if connection.sasl is not None or len(frame) > PLAIN_FRAME_BYTES_MAX or self._has_rules:
            return None
        start_s = time.perf_counter()
        request = read_plain_produce(frame)
        topic = None if request is None else self._topic(request)
        if request is None or topic is None:
            return None
        log = topic.partition(request.partition)
        if isinstance(log, ErrorCode) or not log.new_files.are_made:
            return None
        template = self._template(request, topic)
        template.follow(log.config)
        view = memoryview(frame)[request.records_start : request.records_end]
        now_ms = self._broker.clock.now_ms()
        batch = _checked(view, template, log, now_ms)
        if batch is None:
            return None
        try:
            appended = log.appender.append_as_leader(batch, now_ms=now_ms)
            if isinstance(appended, Refused):
                return None
            self._count(appended, batch, topic, log)
        except Exception as error:  # noqa: BLE001 - the batch may be in the log: it cannot be tried again
            failure = self._failure(error, request, topic, connection)
            return Done(failure, start_s, request, topic, log, 0, waits=False)
        answer = template.answer_to(request, appended.base_offset, log.log_start_offset)
        waits = request.acks == ACKS_ALL
        return Done(answer, start_s, request, topic, log, appended.next_offset, waits)

    def complete_now(self, done: Done) -> bytes | bytearray | None:
        """Returns the answer, and counts the request; None if the answer has to wait for the disk."""
        if done.waits:
            return None
        self._completed(done)
        return done.answer

    def when_durable(self, done: Done, then: Callable[[bytes | bytearray], None]) -> None:
        """Call `then` with the answer once the append is durable, or has failed to become so."""

        def ended(is_durable: bool) -> None:
            if is_durable:
                then(done.answer)
            else:
                then(_refusal(done.request, done.topic, ErrorCode.KAFKA_STORAGE_ERROR))
            self._completed(done)

        self._broker.group_commit.when_durable(done.log, done.next_offset, ended)

    def start_round(self) -> None:
        """Start the sync that answers wait for."""
        self._broker.group_commit.start_round_now()

    # ---------------------------------------------------------------- its parts

    @property
    def _has_rules(self) -> bool:
        """Whether requests need more than an append: a permission, a quota, or a refusal."""
        broker = self._broker
        return broker.authorizer is not None or broker.fence is not None or broker.quotas.are_set

    def _topic(self, request: PlainProduce) -> Topic | None:
        """Returns the topic of a request if clients may write to it."""
        topics = self._broker.topics
        topic: Topic | None
        if request.api_version >= IDS_SINCE:
            topic = topics.by_id(uuid.UUID(bytes=request.topic))
        else:
            topic = topics.get(request.topic.decode(errors="replace"))
        return None if topic is None or topic.is_internal else topic

    def _template(self, request: PlainProduce, topic: Topic) -> _Template:
        key = (request.api_version, request.topic)
        found = self._templates.get(key)
        if found is None:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            found = self._templates[key] = _made_template(request, topic)
        return found

    def _count(
        self, appended: Appended, batch: ValidBatch, topic: Topic, log: PartitionLog
    ) -> None:
        if not appended.duplicate:
            self._broker.group_commit.appended(log)
            header = batch.header
            self._broker.probe.batch_appended(topic.name, header.record_count, header.size_bytes)

    def _failure(
        self, error: Exception, request: PlainProduce, topic: Topic, connection: Connection
    ) -> bytes:
        """Log an append that has failed, as the ordinary path does. Returns the answer."""
        code, warnings = error_code_of(error), self._broker.warnings
        if isinstance(error, StorageError):
            warnings.say(connection, str(error))
            return _refusal(request, topic, code, str(error))
        what = f"{NAME} failed unexpectedly: {type(error).__name__}"
        warnings.say(connection, what, mistake=error)
        return _refusal(request, topic, code)

    def _completed(self, done: Done) -> None:
        """Count a request whose answer is ready."""
        self._broker.probe.request_completed(NAME, time.perf_counter() - done.start_s)


def _checked(
    view: memoryview, template: _Template, log: PartitionLog, now_ms: int
) -> ValidBatch | None:
    """Returns the batch if it is plain and the topic takes it as it is."""
    if not template.takes_plain_batches or len(view) > log.config.max_message_bytes:
        return None
    timestamp_from, timestamp_to = log.validation_rules(now_ms=now_ms).timestamp_bounds
    found = check_plain_batch(
        view, keyed=template.keyed, timestamp_from=timestamp_from, timestamp_to=timestamp_to
    )
    return None if found is None else ValidBatch(BatchHeader(**found), view)


def _made_template(request: PlainProduce, topic: Topic) -> _Template:
    index, error_code, base_offset, time_ms, log_start_offset = MARKS
    response = PartitionProduceResponse(
        index=index,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=time_ms,
        log_start_offset=log_start_offset,
    )
    answer = _encoded(request, topic, response)
    return _Template(answer, answer.rindex(PARTITION.pack(*MARKS)))


def _refusal(
    request: PlainProduce, topic: Topic, error_code: ErrorCode, message: str = ""
) -> bytes:
    response = PartitionProduceResponse(
        index=request.partition,
        error_code=error_code,
        base_offset=-1,
        error_message=message or error_code.message,
    )
    return _encoded(request, topic, response)


def _encoded(request: PlainProduce, topic: Topic, response: PartitionProduceResponse) -> bytes:
    header = RequestHeader(
        api_key=ApiKey.PRODUCE,
        api_version=request.api_version,
        correlation_id=request.correlation_id,
        client_id=None,
    )
    of_topic = TopicProduceResponse(
        name=topic.name, topic_id=topic.id, partition_responses=(response,)
    )
    parts = encode_response(header, ProduceResponse(responses=(of_topic,)))
    return b"".join(cast("list[bytes]", parts))
