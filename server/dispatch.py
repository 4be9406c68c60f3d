"""Turns one request frame into its response: version check, handler, exception -> error code.

    frame -> header -> served? -> body -> handler -> response -> parts
                        |no                  |raises
                        close, or            error code for the whole request
                        ApiVersions v0 with UNSUPPORTED_VERSION (35)

A handler is a module `server/handlers/<name of the API>.py` with

    async def handle(request, context) -> Response | Awaitable[Response | None] | None
    def refuse(request, context, error_code, message) -> Response | None

The connection starts its next request when `handle` returns. Work that must not delay the next
request, such as the wait for a sync, is returned as an awaitable of the response. None means that
no response is sent. `refuse` returns the response in which every requested element has the same
error, or None to close the connection.

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

from cleaner.rules.text import count_text
from protocol.wire.api_keys import Api, ApiKey
from protocol.wire.dismantle import dismantle
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import (
    CorruptBatch,
    DecompressionTooLarge,
    EncodeError,
    InvalidRecord,
    UnsupportedCodec,
    UnsupportedMagic,
)
from protocol.wire.request import Request, RequestHeader, parse_request, parse_request_in_steps
from protocol.wire.response import encode_response, encode_response_in_steps
from protocol.wire.schema import Message
from server.net.connection import CloseConnection, Connection, Reply
from server.net.decoded_size import decoded_memory_bytes
from server.net.outbox import Part
from server.runtime.turns import Pace
from storage.files.errors import StorageError
from storage.formats.config_property import ConfigError
from storage.log.log import PartitionLog

if TYPE_CHECKING:
    from server.broker import Broker


_log = logging.getLogger("server.dispatch")

INLINE_FRAME_BYTES_MAX = 4 << 10
"""Requests up to this size are decoded in one go: they have a few hundred elements at most."""

INLINE_ANSWERS = frozenset({ApiKey.PRODUCE, ApiKey.HEARTBEAT, ApiKey.API_VERSIONS})
"""APIs whose answer to a small request is encoded in one go. Other answers may be much larger than
their request."""

ANY_EPOCH = -1
"""The client does not know the leader epoch, or does not want it checked."""


class RequestContext:
    """The broker, connection, header and pace of a request, for its handler."""

    __slots__ = ("_began_s", "broker", "connection", "header", "pace")

    def __init__(
        self, broker: Broker, header: RequestHeader, connection: Connection, pace: Pace
    ) -> None:
        self.broker = broker
        self.header = header
        self.connection = connection
        self._began_s = asyncio.get_running_loop().time()
        self.pace = pace
        """Paces loops over elements whose number the client chooses."""

    def deadline_s(self, timeout_ms: int) -> float:
        """Returns when the request times out, in seconds on the loop's clock."""
        return self._began_s + timeout_ms / 1000

    def log_of(
        self, topic_name: str, partition: int, leader_epoch: int = ANY_EPOCH
    ) -> PartitionLog | ErrorCode:
        """Returns the log of a partition, or the error code if it cannot be served.

        Args:
            leader_epoch: the epoch that the client expects. An older one than the log's means that
                the client's metadata are stale, a newer one that ours are (KIP-320).
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

    def log_failure(self, error: StorageError) -> ErrorCode:
        """Log the failure of a partition's disk or log. Returns its error code for the client."""
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
    """Returns the error code that a client gets for an exception. Only this function decides it."""
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
    """Runs the requests of one broker; each connection calls it for its requests in order."""

    __slots__ = ("_broker", "_handlers", "_with_surplus")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._handlers: dict[int, Handler] = {}
        # (key, version) of requests that had bytes left after their last field.
        self._with_surplus: set[tuple[int, int]] = set()

    async def __call__(self, frame: bytearray, connection: Connection) -> Reply:
        """Run the request in `frame`. Returns its reply.

        Raises:
            ProtocolError: the broker does not serve this request; nothing was done.
            CloseConnection: the connection must be closed instead of a reply.
        """
        decoded_bytes = decoded_memory_bytes(frame)
        if not decoded_bytes:
            return await self._run(frame, connection)
        async with self._broker.decoded.held(decoded_bytes):
            reply = await self._run(frame, connection)
            return await reply if isinstance(reply, Awaitable) else reply

    async def _run(self, frame: bytearray, connection: Connection) -> Reply:
        start_s = time.perf_counter()
        pace = Pace(self._broker.turns)
        is_small = len(frame) <= INLINE_FRAME_BYTES_MAX
        request = (
            parse_request(frame) if is_small else await pace.run(parse_request_in_steps(frame))
        )
        if request.surplus_bytes:
            self._log_surplus(request, connection)
        context = RequestContext(self._broker, request.header, connection, pace)
        answer = await self._call_handler(request, context)
        if is_small and request.api.key in INLINE_ANSWERS and isinstance(answer, Message):
            return self._complete_small(request, context, answer, start_s)
        if answer is None or isinstance(answer, Message):
            return await self._complete(request, context, answer, start_s)
        return self._complete_later(request, context, answer, start_s)

    def _log_surplus(self, request: Request, connection: Connection) -> None:
        """Log, once for each API and version, that bytes after a request's end are ignored."""
        key = (request.header.api_key, request.header.api_version)
        if key not in self._with_surplus:
            self._with_surplus.add(key)
            name = f"{request.api.name} v{request.header.api_version}"
            surplus = count_text(request.surplus_bytes, "byte")
            _log.debug("%s: %s has %s after its last field, ignored", connection, name, surplus)

    async def _call_handler(self, request: Request, context: RequestContext) -> Answer:
        """Returns the handler's answer, or a refusal if the handler raised an exception."""
        try:
            return await self._handler(request.api).handle(request.body, context)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001 - every failure of a handler becomes an answer
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
        return await self._complete(request, context, message, start_s)

    def _complete_small(
        self, request: Request, context: RequestContext, message: Message, start_s: float
    ) -> list[Part] | None:
        """Encode a small answer in one go. Returns its parts."""
        self._broker.probe.request_completed(request.api.name, time.perf_counter() - start_s)
        with self._encode_errors(request, context):
            return cast("list[Part]", encode_response(request.header, message))

    async def _complete(
        self, request: Request, context: RequestContext, message: Message | None, start_s: float
    ) -> list[Part] | None:
        """Encode an answer of any size, then free request and answer, in slices. Returns its parts."""
        parts = None
        if message is not None:
            with self._encode_errors(request, context):
                parts = await self._encode(request.header, message, context.pace)
        self._broker.probe.request_completed(request.api.name, time.perf_counter() - start_s)
        if context.pace.has_rested:
            # These messages are large: dropping the last reference would free them in one go.
            for done in (message, request.body):
                if done is not None:
                    await context.pace.run(dismantle(done))
        return parts

    async def _encode(self, header: RequestHeader, message: Message, pace: Pace) -> list[Part]:
        """Encode an answer in slices; wait for room while memory for answers is short."""
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
        """Close the connection if the answer cannot be encoded, which is a bug of the broker."""
        try:
            yield
        except EncodeError as error:
            what = f"{request.api.name} v{request.header.api_version}: cannot encode the answer"
            self._broker.warnings.say(context.connection, what, mistake=error)
            raise CloseConnection("cannot encode the answer") from error

    def _refusal(self, request: Request, context: RequestContext, error: Exception) -> Message:
        """Log the failure of a handler. Returns the answer that carries its error code.

        Raises:
            CloseConnection: the API has no answer that could carry an error.
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
