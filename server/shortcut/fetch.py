"""Answers a plain Fetch in the callback that received it, if its records are in memory.

    frame -> read_plain_fetch -> log -> read -> answer: template | records
                 | None            | nothing to read yet, an error, not in memory: None
                 the ordinary path: `server/dispatch.py`, `server/handlers/fetch.py`

The ordinary path is the specification: it parks, refuses, reads from the disk, and filters views.
`protocol/records/plain_fetch.pyi` says which requests are plain; `tests/server/shortcut/test_fetch.py`
compares both paths.
"""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from protocol.messages.fetch import (
    IDS_SINCE,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from protocol.records.plain_fetch import PlainFetch, read_plain_fetch
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from protocol.wire.primitives import write_unsigned_varint
from server.net.send_queue import COPIED_BYTES_MAX, Part
from server.request_context import ANY_EPOCH
from server.runtime.tasks import report_failure
from server.shortcut.answer_template import MARKS, AnswerTemplate, Templates, encoded_answer
from server.shortcut.existing_topic import existing_topic
from server.views.latest_view import LatestView, is_in_snapshot
from server.views.readable_topics import Readable
from storage.files.errors import NotCached, StorageError
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation, ReadResult
from storage.threads import loop_thread

if TYPE_CHECKING:
    from server.broker import Broker
    from server.net.connection import Connection

PLAIN_FRAME_BYTES_MAX = 4 << 10
"""A request for one partition is small; only names and racks that clients choose make it larger."""
NAME = APIS[ApiKey.FETCH].name
SIZE = struct.Struct(">i")


class _Template:
    """The answer to a plain request about one topic, in one version: before and after the records."""

    __slots__ = ("_before", "_is_flexible", "_tail")

    def __init__(self, answer: bytes, *, is_flexible: bool) -> None:
        """Take an answer whose records are empty."""
        # Flexible: the size plus one as a varint, the records, and three times no tags.
        end = len(answer) - SIZE.size
        assert answer[end:] == (b"\1\0\0\0" if is_flexible else b"\0\0\0\0")
        self._is_flexible = is_flexible
        self._before = AnswerTemplate(answer[:end])
        self._tail = answer[end + 1 :] if is_flexible else b""

    def around(self, request: PlainFetch, read: ReadResult, size: int) -> tuple[bytearray, bytes]:
        """Returns the bytes before and after so many bytes of records."""
        numbers = read.high_watermark, read.last_stable_offset, read.log_start_offset
        before = self._before.filled(request.correlation_id, request.partition, *numbers)
        if self._is_flexible:
            write_unsigned_varint(before, size + 1)
        else:
            before += SIZE.pack(size)
        SIZE.pack_into(before, 0, len(before) - SIZE.size + size + len(self._tail))
        return before, self._tail


@loop_thread
class FetchShortcut:
    """The second path of Fetch, for one broker."""

    __slots__ = ("_broker", "_templates")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._templates = Templates[tuple[int, bytes, int], _Template]()

    def read(self, frame: bytearray, connection: Connection) -> list[Part] | None:
        """Answer a plain request that has something to read, and count it. Returns None if the request
        must take the ordinary path; then nothing has happened.

        The caller owns the frame, and no earlier request of the connection is running or queued. The
        answer holds a pin if it has a region of a segment file.
        """
        if len(frame) > PLAIN_FRAME_BYTES_MAX or self._is_for_followers(connection):
            return None
        start_s = time.perf_counter()
        request = read_plain_fetch(frame)
        if request is None:
            return None
        try:
            parts = self._answer(request)
        except (NotCached, StorageError):
            return None  # The ordinary path reads from the disk, and reports what fails.
        except Exception as error:  # noqa: BLE001 - the ordinary path may do it right
            report_failure("plain fetch", error)
            return None
        if parts is not None:
            self._broker.probe.request_completed(NAME, time.perf_counter() - start_s)
        return parts

    def _answer(self, request: PlainFetch) -> list[Part] | None:
        """Returns the answer if it has records. Raises NotCached, StorageError; then no pin is left."""
        topic = existing_topic(
            self._broker.readable_topics, request.topic, is_id=request.api_version >= IDS_SINCE
        )
        log = None if topic is None else _readable_log(topic, request)
        if topic is None or log is None:
            return None
        template = self._template(request, topic)
        is_view = isinstance(topic, LatestView)
        if is_view and is_in_snapshot(topic):
            return None  # It is filtered in any case.
        read = self._read(request, log, is_view=is_view)
        if read is None:
            return None
        try:
            size = read.size
            before, tail = template.around(request, read, size)
            records = self._records(read, size)
            self._broker.probe.partition_fetched(topic.name, size, is_failed=False)
            self._broker.view_reads.stored_total += is_view
        except BaseException:
            read.release()
            raise
        return [before, *records, tail] if tail else [before, *records]

    def _records(self, read: ReadResult, size: int) -> list[Part]:
        """Returns the records of a read: copied if they are small, else its pinned regions."""
        if size > COPIED_BYTES_MAX or not self._broker.answers.has_room:
            return list(read.regions)
        return [read.copied()]

    def _is_for_followers(self, connection: Connection) -> bool:
        """Returns whether the connection is to the listener on which followers may ask for more."""
        internal = self._broker.config.internal_listener
        return bool(internal) and connection.endpoint.name == internal

    def _read(self, request: PlainFetch, log: PartitionLog, *, is_view: bool) -> ReadResult | None:
        """Read from memory. Returns None if that finds less than the client waits for. Raises NotCached,
        StorageError."""
        bytes_max = min(request.max_bytes, self._broker.config.fetch_max_bytes)
        read = (self._read_view if is_view else self._read_topic)(
            request, log, max(0, min(request.partition_max_bytes, bytes_max))
        )
        if read is None or isinstance(read, ErrorCode):
            return None
        size = read.size
        is_enough = size >= min(request.min_bytes, bytes_max) or request.max_wait_ms <= 0
        if size and is_enough and not read.aborted:
            return read
        read.release()
        return None

    def _read_topic(
        self, request: PlainFetch, log: PartitionLog, bytes_max: int
    ) -> ReadResult | ErrorCode:
        return log.reader.read(
            Offset(request.fetch_offset),
            max_bytes=bytes_max,
            whole_first_batch=True,
            isolation=_isolation(request),
            cached_only=True,
        )

    def _read_view(
        self, request: PlainFetch, log: PartitionLog, bytes_max: int
    ) -> ReadResult | None:
        """Returns records that are sent as they are stored, and where the view ends."""
        if not self._broker.answers.has_room:
            return None
        read = self._broker.view_reads.read_at_once(
            log, Offset(request.fetch_offset), bytes_max=bytes_max
        )
        return None if read is None else replace(read, high_watermark=read.last_stable_offset)

    def _template(self, request: PlainFetch, topic: Readable) -> _Template:
        isolation = _isolation(request)
        key = (request.api_version, request.topic, isolation)
        found = self._templates.find(key)
        if found is None:
            found = self._templates.set(key, _made_template(request.api_version, topic, isolation))
        return found


def _readable_log(topic: Readable, request: PlainFetch) -> PartitionLog | None:
    """Returns the log of a request if there is something to read."""
    log = topic.partition(request.partition)
    if isinstance(log, ErrorCode) or request.fetch_offset >= log.high_watermark:
        return None
    return log if request.current_leader_epoch in (ANY_EPOCH, log.leader_epoch) else None


def _isolation(request: PlainFetch) -> Isolation:
    committed = request.isolation_level == Isolation.READ_COMMITTED
    return Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED


def _made_template(api_version: int, topic: Readable, isolation: Isolation) -> _Template:
    index, error_code, high_watermark, last_stable_offset, log_start_offset = MARKS
    of_partition = PartitionData(
        partition_index=index,
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=None if isolation is Isolation.READ_UNCOMMITTED else (),
        records=b"",
    )
    of_topic = FetchableTopicResponse(
        topic=topic.name, topic_id=topic.id, partitions=(of_partition,)
    )
    answer = encoded_answer(FetchResponse(responses=(of_topic,)), api_version, 0)
    return _Template(answer, is_flexible=api_version >= FetchResponse.flexible_since)
