"""The HTTP route that streams a topic's last values, and then each change (docs/design/views.md).

GET    /v1/topics/<topic>/changes     server-sent events: the last value of each key, "live" after all of
                                      them, then each change; ?partition=N, ?from=now, ?follow=false,
                                      ?value_format=raw, Last-Event-ID

It reads the view of the topic, so an event comes once its record is stable. It needs Read on the topic;
one that the client may not read is answered like one that does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from aiohttp import web

from cleaner.rules.text import count_text
from protocol.records.batch_header import BatchHeader
from protocol.records.compression import Codec
from protocol.records.record import Record
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset
from server.admin.compaction_answers import parse_number, refusals_as_json
from server.admin.http_rules import CHANGES
from server.admin.refusals import CompactionRefused, serving
from server.durability.fetch_waiters import FetchWaiters
from server.lookup.asked_topic import asked_topic, check_exists, check_partition, logs_of
from server.lookup.change_events import (
    ERROR,
    LIVE,
    STILL_THERE,
    batches_in,
    encoded_in,
    event,
    events_of_records,
    id_line,
    pieces_of,
    positions_of,
    records_of_batch,
)
from server.lookup.lookup_request import AUTO, bad, is_raw
from server.lookup.value_decoding import ValueDecoding
from server.lookup.view_reads import UnreadableView, ViewRead, ViewReads
from server.runtime.executors import Executor
from server.runtime.turns import Turns
from server.topics.topic import Topic
from server.topics.topics import Topics
from storage.files.errors import StorageError
from storage.log.log import PartitionLog

STREAMS_MAX = 100
PARTITIONS_MAX = 64
"""Each id names the positions of all partitions of a stream."""
READ_BYTES = 64 << 10
LOOP_BYTES_MAX = 16 << 10
"""Larger batches, and compressed ones, are made into events in a thread."""
DECOMPRESSED_BYTES_MAX = 64 << 20
STILL_THERE_SECONDS = 15.0
READ_SECONDS_MAX = 75.0
"""A client that reads nothing for so long loses its stream."""
PARAMETERS = frozenset({"partition", "from", "follow", "value_format"})
NO_EPOCH = Epoch(-1)

T = TypeVar("T")


class ChangeRoutes:
    """Streams changes to any number of clients up to a bound."""

    def __init__(
        self,
        topics: Callable[[], Topics | str],
        views: ViewReads,
        waiters: FetchWaiters,
        turns: Turns,
        *,
        encoding: Executor,
        decoding: ValueDecoding | None,
    ) -> None:
        """
        Args:
            topics: returns a sentence while the broker does not serve.
            encoding: the thread that makes the events of large batches.
            decoding: decodes values that name a schema; None without a registry.
        """
        # Constant after construction.
        self._topics = topics
        self._views = views
        self._waiters = waiters
        self._turns = turns
        self._encoding = encoding
        self._decoding = decoding
        # State.
        self._streams = 0

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes to add to an application's router."""
        return [web.get(CHANGES, refusals_as_json(self._changes), allow_head=False)]

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        topic = asked_topic(serving(self._topics()), request.match_info["topic"])
        logs = _asked_logs(topic, request.query)
        positions = _start(logs, request)
        follows = _choice(request.query, "follow", ("true", "false")) == "true"
        decoding = None if is_raw(request.query.get("value_format", AUTO)) else self._decoding
        if self._streams >= STREAMS_MAX:
            raise CompactionRefused(
                503,
                f"{STREAMS_MAX} streams of changes are open: try again",
                code="too_many_streams",
            )
        self._streams += 1
        try:
            made = self._events(topic, logs, positions, decoding, follows=follows)
            async with aclosing(made) as events:
                # Before the status is sent: a refusal should have its own.
                first = await anext(events)
                return await _sent(request, first, events)
        finally:
            self._streams -= 1

    async def _events(
        self,
        topic: Topic,
        logs: Mapping[int, PartitionLog],
        positions: dict[int, Offset],
        decoding: ValueDecoding | None,
        *,
        follows: bool,
    ) -> AsyncGenerator[bytes, None]:
        """Yields the events in pieces. Raises CompactionRefused where the stream cannot continue."""
        is_live = False
        parked = self._waiters.park()
        try:
            for log in logs.values():
                parked.watch(log)
            while True:
                for number, log in logs.items():
                    while positions[number] < log.last_stable_offset:
                        async for piece in self._read(number, log, positions, decoding):
                            yield piece
                if not is_live:
                    is_live = True
                    said = {str(number): offset for number, offset in positions.items()}
                    yield event(LIVE, {"positions": said})
                    yield id_line(positions)
                if not follows:
                    return
                await parked.wait(STILL_THERE_SECONDS)
                check_exists(serving(self._topics()), topic)
                if not parked.take_woken():
                    yield STILL_THERE
        finally:
            parked.leave()

    async def _read(
        self,
        number: int,
        log: PartitionLog,
        positions: dict[int, Offset],
        decoding: ValueDecoding | None,
    ) -> AsyncIterator[bytes]:
        """Read a partition once, yield its events, and move its position."""
        start = end = positions[number]
        for data in await self._taken(await self._view_of(log, start)):
            for at, header in batches_in(data):
                end = max(end, header.next_offset)
                if header.is_control or header.next_offset <= start:
                    continue
                batch = _Batch(number, data, at, start, is_large=_is_large(header))
                async for piece in self._events_of(batch, decoding):
                    yield piece
                await self._turns.next(is_new=False)
        positions[number] = end
        yield id_line(positions)

    async def _events_of(
        self, batch: _Batch, decoding: ValueDecoding | None
    ) -> AsyncIterator[bytes]:
        """Yields the events of a batch."""
        if decoding is None:
            yield await self._made(batch.is_large, batch.events)
            return
        for piece in pieces_of(await self._made(batch.is_large, batch.records)):
            decodings = await decoding.decodings(encoded_in(piece))
            make = partial(events_of_records, batch.partition, piece, decodings)
            yield await self._made(sum(map(len, encoded_in(piece))) > LOOP_BYTES_MAX, make)

    async def _made(self, is_large: bool, make: Callable[[], T]) -> T:
        """Returns what a function makes, in a thread if that takes long."""
        return await self._encoding.run(make) if is_large else make()

    async def _view_of(self, log: PartitionLog, offset: Offset) -> ViewRead:
        try:
            found = await self._views.read(
                log,
                offset,
                bytes_max=READ_BYTES,
                whole_first_batch=True,
                last_fetched_epoch=NO_EPOCH,
            )
        except UnreadableView as error:
            raise CompactionRefused(503, str(error), code=error.error_code.name.lower()) from error
        except StorageError as error:
            raise CompactionRefused(500, str(error)) from error
        if isinstance(found, ErrorCode):
            raise _out_of_range(log, offset)
        return found

    async def _taken(self, found: ViewRead) -> list[bytes]:
        """Returns the batches of a read, and releases its segments."""
        try:
            stored = [await self._encoding.run(each.read_bytes) for each in found.read.regions]
        except StorageError as error:
            raise CompactionRefused(500, str(error)) from error
        finally:
            found.read.release()
        return [*map(bytes, found.records), *stored]


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch that was read."""

    partition: int
    data: bytes
    at: int
    """Where it begins in `data`."""
    start: Offset
    """The first offset that is sent."""
    is_large: bool = field(kw_only=True)

    def events(self) -> bytes:
        """Returns the events about its records, which are not decoded."""
        return events_of_records(self.partition, self.records(), {})

    def records(self) -> list[Record]:
        """Returns its records."""
        return records_of_batch(
            self.data, self.at, self.start, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
        )


async def _sent(
    request: web.Request, first: bytes, events: AsyncIterator[bytes]
) -> web.StreamResponse:
    """Send the events, each piece once the client has taken most of those before."""
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    await response.prepare(request)
    try:
        await _written(response, first)
        async for piece in events:
            await _written(response, piece)
    except CompactionRefused as refused:
        await _written(response, event(ERROR, {"error": str(refused), "code": refused.code}))
    except (TimeoutError, ConnectionError):
        # The client does not read, or has gone.
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response


async def _written(response: web.StreamResponse, piece: bytes) -> None:
    """Send a piece. Raises TimeoutError, ConnectionError."""
    async with asyncio.timeout(READ_SECONDS_MAX):
        await response.write(piece)


def _is_large(header: BatchHeader) -> bool:
    return header.size_bytes > LOOP_BYTES_MAX or header.codec is not Codec.NONE


def _asked_logs(topic: Topic, parameters: Mapping[str, str]) -> dict[int, PartitionLog]:
    """Returns the logs of the partitions that a request asks for. Raises CompactionRefused."""
    for name in parameters:
        if name not in PARAMETERS:
            raise bad(f"there is no parameter {name!r}: there are {', '.join(sorted(PARAMETERS))}")
    if "partition" in parameters:
        number = parse_number(parameters["partition"])
        if number is None:
            raise bad(f"partition is a number, not {parameters['partition']!r}")
        check_partition(topic, number)
        return logs_of(topic, [number])
    count = len(topic.partitions)
    if count > PARTITIONS_MAX:
        said = count_text(count, "partition")
        raise bad(f"{topic.name} has {said}: name one with partition=N")
    return logs_of(topic, range(count))


def _start(logs: Mapping[int, PartitionLog], request: web.Request) -> dict[int, Offset]:
    """Returns where the stream begins in each partition. Raises CompactionRefused."""
    if _choice(request.query, "from", ("start", "now")) == "now":
        positions = {number: log.last_stable_offset for number, log in logs.items()}
    else:
        positions = {number: log.log_start_offset for number, log in logs.items()}
    last_id = request.headers.get("Last-Event-ID")
    if last_id:
        positions |= {
            number: Offset(offset) for number, offset in positions_of(last_id, logs).items()
        }
    for number, log in logs.items():
        if positions[number] > log.log_end_offset:
            raise _out_of_range(log, positions[number])
    return positions


def _out_of_range(log: PartitionLog, offset: Offset) -> CompactionRefused:
    return CompactionRefused(
        409,
        f"{log.topic_partition} has no offset {offset}: begin from the start",
        code="offset_out_of_range",
    )


def _choice(parameters: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Returns the value of a parameter, the first choice if it is not given."""
    found = parameters.get(name, choices[0])
    if found not in choices:
        raise bad(f"{name} is {' or '.join(choices)}, not {found!r}")
    return found
