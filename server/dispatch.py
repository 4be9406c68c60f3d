"""One request from its frame to its response: version gate, handler, exception -> error code.

    frame -> header -> served? -> body -> handler -> response -> parts
                        |no                  |raises
                        close, or            error code for the whole request
                        ApiVersions v0 with UNSUPPORTED_VERSION (35)

A handler is a module `server/handlers/<name of the API>.py` with

    async def handle(request, context) -> Response | Awaitable[Response | None] | None
    def refuse(request, context, error_code, message) -> Response | None

The next request of the connection starts when `handle` returns. What need not hold it up, such as
the wait for a sync, is returned as an awaitable of the response. None is no response. `refuse`
makes the response in which every element that was asked for has the same error; None closes.

Source: Apache Kafka, RequestContext.java (unknown versions), KafkaApis.scala (errors).
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

from cleaner.text import count_text
from protocol.api_keys import Api, ApiKey
from protocol.dismantle import dismantle
from protocol.error_codes import ErrorCode
from protocol.errors import (
    CorruptBatch,
    DecompressionTooLarge,
    EncodeError,
    InvalidRecord,
    UnsupportedCodec,
    UnsupportedMagic,
)
from protocol.request import Request, RequestHeader, parse_request, parse_request_in_steps
from protocol.response import encode_response, encode_response_in_steps
from protocol.schema import Message
from server.connection import (
    DECODED_FACTOR,
    LARGE_FRAME_BYTES,
    CloseConnection,
    Connection,
    Reply,
    api_key_of,
)
from server.outbox import Part
from server.turns import Pace
from storage.config_property import ConfigError
from storage.errors import StorageError
from storage.log import PartitionLog

if TYPE_CHECKING:
    from server.broker import Broker


_log = logging.getLogger("server.dispatch")

INLINE_FRAME_BYTES_MAX = 4 << 10
"""A request of so few bytes is decoded at once: it has a few hundred elements at most."""

NOT_HELD = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Large requests of other APIs wait for their share of the memory for decoded requests. A Produce
takes no more decoded than encoded, and the rest may wait for other clients, whom they must not hold
up: a Fetch counts with all that it takes in the memory of its connection."""

INLINE_ANSWERS = frozenset({ApiKey.PRODUCE, ApiKey.HEARTBEAT, ApiKey.API_VERSIONS})
"""Their answers to such a request are encoded at once; those of others may be much larger."""

ANY_EPOCH = -1
"""A client that does not know the leader epoch, or does not care."""


class RequestContext:
    """What a handler knows besides its request."""

    __slots__ = ("_began_s", "broker", "connection", "header", "pace")

    def __init__(
        self, broker: Broker, header: RequestHeader, connection: Connection, pace: Pace
    ) -> None:
        self.broker = broker
        self.header = header
        self.connection = connection
        self._began_s = asyncio.get_running_loop().time()
        self.pace = pace
        """Loops over what a client may ask for any number of times go by it."""

    def deadline_s(self, timeout_ms: int) -> float:
        """When a request with that timeout is over, on the loop's clock."""
        return self._began_s + timeout_ms / 1000

    def log_of(
        self, topic_name: str, partition: int, leader_epoch: int = ANY_EPOCH
    ) -> PartitionLog | ErrorCode:
        """The log of a partition, if it is served and the client's idea of its leader is right.

        Args:
            leader_epoch: what the client believes it to be; an older one means that the client's
                metadata are stale, a newer one that ours are (KIP-320).
        """
        topic = self.broker.topics.get(topic_name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = topic.partition(partition)
        if isinstance(log, ErrorCode):
            return log
        if log.offline_reason is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if leader_epoch != ANY_EPOCH and leader_epoch != log.leader_epoch:
            is_old = leader_epoch < log.leader_epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        return log

    def code_of(self, error: StorageError) -> ErrorCode:
        """What the client is told of a partition whose disk or log failed; the operator too."""
        self.broker.warnings.say(self.connection, str(error))
        return error_code_of(error)


Answer = Message | Awaitable[Message | None] | None


class Handler(Protocol):
    """A module of `server/handlers`."""

    async def handle(self, request: Any, context: RequestContext) -> Answer: ...

    def refuse(
        self, request: Any, context: RequestContext, error_code: ErrorCode, message: str
    ) -> Message | None: ...


def error_code_of(error: Exception) -> ErrorCode:
    """What a client is told about an exception. The one place that decides it."""
    match error:
        case CorruptBatch():
            return ErrorCode.CORRUPT_MESSAGE
        case InvalidRecord() | UnsupportedMagic():
            return ErrorCode.INVALID_RECORD
        case UnsupportedCodec():
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        case DecompressionTooLarge():
            return ErrorCode.MESSAGE_TOO_LARGE
        case ConfigError():
            return ErrorCode.INVALID_CONFIG
        case StorageError():
            return ErrorCode.KAFKA_STORAGE_ERROR
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR


class Dispatcher:
    """Carries out requests for one broker; `server/connection.py` calls it in order."""

    __slots__ = ("_broker", "_handlers", "_with_surplus")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._handlers: dict[int, Handler] = {}
        # Keys and versions of requests that came with bytes behind their end.
        self._with_surplus: set[tuple[int, int]] = set()

    async def __call__(self, frame: bytearray, connection: Connection) -> Reply:
        """Carry out the request in `frame`.

        Raises:
            ProtocolError: it is not a request that we serve; nothing was done.
            CloseConnection: its answer is to close the connection.
        """
        size = len(frame)
        if size <= LARGE_FRAME_BYTES or api_key_of(frame) in NOT_HELD:
            return await self._carried_out(frame, connection)
        async with self._broker.decoded.held(size * DECODED_FACTOR):
            reply = await self._carried_out(frame, connection)
            return await reply if isinstance(reply, Awaitable) else reply

    async def _carried_out(self, frame: bytearray, connection: Connection) -> Reply:
        start_s = time.perf_counter()
        pace = Pace(self._broker.turns)
        is_small = len(frame) <= INLINE_FRAME_BYTES_MAX
        request = (
            parse_request(frame) if is_small else await pace.run(parse_request_in_steps(frame))
        )
        if request.surplus_bytes:
            self._note_surplus(request, connection)
        context = RequestContext(self._broker, request.header, connection, pace)
        answer = await self._handled(request, context)
        if is_small and request.api.key in INLINE_ANSWERS and isinstance(answer, Message):
            return self._completed(request, context, answer, start_s)
        if answer is None or isinstance(answer, Message):
            return await self._completed_in_steps(request, context, answer, start_s)
        return self._complete_later(request, context, answer, start_s)

    def _note_surplus(self, request: Request, connection: Connection) -> None:
        """Say once for each API and version that bytes behind a request's end are ignored."""
        key = (request.header.api_key, request.header.api_version)
        if key not in self._with_surplus:
            self._with_surplus.add(key)
            name = f"{request.api.name} v{request.header.api_version}"
            surplus = count_text(request.surplus_bytes, "byte")
            _log.debug("%s: %s, %s too many", connection, name, surplus)

    async def _handled(self, request: Request, context: RequestContext) -> Answer:
        """What the handler answers, or the refusal that its exception becomes."""
        try:
            return await self._handler(request.api).handle(request.body, context)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001 - the one place that answers for them all
            return self._refusal(request, context, error)

    async def _complete_later(
        self,
        request: Request,
        context: RequestContext,
        answer: Awaitable[Message | None],
        start_s: float,
    ) -> list[Part] | None:
        try:
            message = await answer
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001
            message = self._refusal(request, context, error)
        return await self._completed_in_steps(request, context, message, start_s)

    def _completed(
        self, request: Request, context: RequestContext, message: Message, start_s: float
    ) -> list[Part] | None:
        """Encode an answer that is as small as its request."""
        self._broker.probe.request_completed(request.api.name, time.perf_counter() - start_s)
        with self._encode_errors(request, context):
            return cast("list[Part]", encode_response(request.header, message))

    async def _completed_in_steps(
        self, request: Request, context: RequestContext, message: Message | None, start_s: float
    ) -> list[Part] | None:
        """Encode an answer of any size, then free both messages; rest wherever a slice is over."""
        parts = None
        if message is not None:
            with self._encode_errors(request, context):
                parts = await self._encoded(request.header, message, context.pace)
        self._broker.probe.request_completed(request.api.name, time.perf_counter() - start_s)
        if context.pace.has_rested:
            for done in (message, request.body):
                if done is not None:
                    await context.pace.run(dismantle(done))
        return parts

    async def _encoded(self, header: RequestHeader, message: Message, pace: Pace) -> list[Part]:
        """Encode an answer in steps; where memory for answers is short, wait before it grows."""
        steps = encode_response_in_steps(header, message)
        answers, grown_bytes = self._broker.answers, 0
        try:
            while True:
                size = next(steps)
                if size:
                    grown_bytes += size
                    await answers.grow(steps, size)
                if pace.is_over:
                    await pace.rest()
        except StopIteration as ended:
            return cast("list[Part]", ended.value)
        finally:
            answers.complete(steps, grown_bytes)

    @contextmanager
    def _encode_errors(self, request: Request, context: RequestContext) -> Iterator[None]:
        """Close the connection for an answer that cannot be encoded: that is a mistake of ours."""
        try:
            yield
        except EncodeError as error:
            what = f"{request.api.name} v{request.header.api_version}: an answer cannot be encoded"
            self._broker.warnings.say(context.connection, what, mistake=error)
            raise CloseConnection("an answer of ours cannot be encoded") from error

    def _refusal(self, request: Request, context: RequestContext, error: Exception) -> Message:
        """Answer a request whose handler failed.

        Raises:
            CloseConnection: there is no answer that would not lie.
        """
        code = error_code_of(error)
        name, peer = request.api.name, context.connection
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            text = code.message
            what = f"{name} failed unexpectedly: {type(error).__name__}"
            self._broker.warnings.say(peer, what, mistake=error)
        else:
            text = str(error)
            self._broker.warnings.say(peer, f"{name} failed: {text}")
        refusal = None
        if request.body is not None:
            refusal = self._handler(request.api).refuse(request.body, context, code, text)
        if refusal is None:
            raise CloseConnection(f"{name} failed") from error
        return refusal

    def _handler(self, api: Api) -> Handler:
        handler = self._handlers.get(api.key)
        if handler is None:
            module = importlib.import_module(f"server.handlers.{api.key.name.lower()}")
            handler = self._handlers[api.key] = cast("Handler", module)
        return handler
