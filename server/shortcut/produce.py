"""Appends a plain Produce in the callback that received it: no task, no queue of requests.

    frame -> read_plain_produce -> log -> check_plain_batch -> append -> answer, packed
                 | None            |      or, if it is compressed, validate_at_once
                 |                 | anything unusual: None
                 the ordinary path: `server/dispatch.py`, `server/handlers/produce.py`

The ordinary path is the specification: it answers what is refused, waits or needs a permission. So
nothing may have happened when this path hands a request over. `protocol/records/plain_produce.pyi`
says which requests are plain; `tests/server/shortcut/test_produce.py` compares both paths.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.messages.produce import (
    ACKS_ALL,
    IDS_SINCE,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.batch_header import CODEC_MASK, FLAGS_AT, BatchHeader
from protocol.records.codec import Codec
from protocol.records.plain_produce import PlainProduce, check_plain_batch, read_plain_produce
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.value_class import value_class
from server.net.send_queue import Part
from server.request_context import error_code_of
from server.runtime.tasks import report_failure
from server.shortcut.answer_template import MARKS, AnswerTemplate, Templates, encoded_answer
from server.shortcut.existing_topic import existing_topic
from server.topics.topic import Topic
from storage.batches.validate import (
    AT_ONCE_BYTES_MAX,
    Refused,
    ValidBatch,
    producers_timestamp_bounds,
    validate_at_once,
)
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
    """The answer to a plain request about one topic, in one version, and what its topic takes."""

    answer: AnswerTemplate
    topic: Topic
    config: LogConfig | None = None
    """The configuration from which the next two follow."""
    takes_plain_batches: bool = False
    """Whether the topic stores them as they come, with the producers' times."""
    keyed: bool = False
    """Whether its records need keys."""
    inflates_to_much: bool = False
    """Whether a compressed batch took too long to check here. The ordinary path inflates it again, so it
    gets the others of the topic at once."""

    def follow(self, config: LogConfig) -> None:
        """Take the topic's configuration, which seldom changes."""
        self.config, self.keyed = config, config.is_compacted
        stored = config.stored_codec
        self.takes_plain_batches = not (
            config.is_mirror
            or config.is_log_append_time
            or (stored is not None and stored.codec is not Codec.NONE)
            or config.min_insync_replicas > 1
        )


@loop_thread
class ProduceShortcut:
    """The second path of Produce, for one broker."""

    __slots__ = ("_broker", "_revision", "_templates")

    def __init__(self, broker: Broker) -> None:
        # Constant after construction
        self._broker = broker
        # State
        self._templates = Templates[tuple[int, bytes], _Template]()
        self._revision = -1
        """The revision of the topics that the templates are about."""

    def append(self, frame: bytearray, connection: Connection) -> Done | None:
        """Append the batch of a plain request. Returns None if the request must take the ordinary path;
        then nothing has happened.

        The caller owns the frame, and no earlier request of the connection is running or queued.
        """
        if len(frame) > PLAIN_FRAME_BYTES_MAX:
            return None
        start_s = time.perf_counter()
        request = read_plain_produce(frame)
        if request is None:
            return None
        template = self._template(request)
        if template is None:
            return None
        topic = template.topic
        log = topic.partition(request.partition)
        if isinstance(log, ErrorCode) or not log.new_files.are_made:
            return None
        config = log.config
        if template.config is not config:
            template.follow(config)
        view = memoryview(frame)[request.records_start : request.records_end]
        now_ms = self._broker.clock.now_ms()
        try:
            batch = _checked(view, template, log, now_ms)
        except Exception as error:  # noqa: BLE001 - the ordinary path may do it right
            report_failure("plain produce", error)
            return None
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
        numbers = appended.base_offset, -1, log.log_start_offset
        answer = template.answer.filled(request.correlation_id, request.partition, *numbers)
        waits = request.acks == ACKS_ALL
        return Done(answer, start_s, request, topic, log, appended.next_offset, waits)

    def complete_now(self, done: Done) -> list[Part] | None:
        """Returns the answer, and counts the request; None if the answer has to wait for the disk."""
        if done.waits:
            return None
        self._completed(done)
        return [done.answer]

    def when_durable(self, done: Done, then: Callable[[bytes | bytearray], None]) -> None:
        """Call `then` with the answer once the append is durable, or has failed to become so."""

        def ended(is_durable: bool) -> None:
            if is_durable:
                then(done.answer)
            else:
                then(_refusal(done.request, done.topic, ErrorCode.KAFKA_STORAGE_ERROR))
            self._completed(done)

        self._broker.group_commit.when_durable(done.log, done.next_offset, ended)

    # ---------------------------------------------------------------- its parts

    def _template(self, request: PlainProduce) -> _Template | None:
        """Returns the template of a topic as it is now; None if there is no topic to write."""
        topics = self._broker.topics
        if self._revision != topics.revision:
            # They refer to topics as they were, and these may be deleted.
            self._templates.clear()
            self._revision = topics.revision
        key = request.api_version, request.topic
        found = self._templates.find(key)
        if found is None:
            topic = existing_topic(topics, request.topic, is_id=request.api_version >= IDS_SINCE)
            if topic is not None:
                found = self._templates.set(key, _made_template(request, topic))
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
    """Returns the batch in its stored form if the topic takes it, no transaction has to be asked, and
    checking it does not take long."""
    config = log.config
    if not template.takes_plain_batches or len(view) > config.max_message_bytes:
        return None
    if _has_codec_only(view):
        if template.inflates_to_much:
            return None
        valid = validate_at_once(view, log.validation_rules(now_ms=now_ms))
        template.inflates_to_much = valid is None
        return valid if isinstance(valid, ValidBatch) else None
    timestamp_from, timestamp_to = producers_timestamp_bounds(config, now_ms)
    found = check_plain_batch(
        view, keyed=template.keyed, timestamp_from=timestamp_from, timestamp_to=timestamp_to
    )
    return None if found is None else ValidBatch(BatchHeader(**found), view)


def _has_codec_only(view: memoryview) -> bool:
    """Returns whether the batch is compressed, and its attributes say nothing else."""
    attributes = view[FLAGS_AT - 1 : FLAGS_AT + 1]
    return len(attributes) == 2 and not attributes[0] and 0 < attributes[1] <= CODEC_MASK


def _made_template(request: PlainProduce, topic: Topic) -> _Template:
    index, error_code, base_offset, time_ms, log_start_offset = MARKS
    response = PartitionProduceResponse(
        index=index,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=time_ms,
        log_start_offset=log_start_offset,
    )
    return _Template(AnswerTemplate(_encoded(request, topic, response)), topic)


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


def _encoded(request: PlainProduce, topic: Topic, of_partition: PartitionProduceResponse) -> bytes:
    of_topic = TopicProduceResponse(
        name=topic.name, topic_id=topic.id, partition_responses=(of_partition,)
    )
    response = ProduceResponse(responses=(of_topic,))
    return encoded_answer(response, request.api_version, request.correlation_id)
