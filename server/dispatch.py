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

A plain Produce or Fetch does not come here (`server/shortcut/plain.py`).

Source: Apache Kafka, RequestContext.java (unknown versions), KafkaApis.scala (errors).
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol, cast

from cleaner.rules.text import count_text
from protocol.wire.api_keys import Api, ApiKey
from protocol.wire.dismantle import dismantle
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import (
    EncodeError,
)
from protocol.wire.request import Request, RequestHeader, parse_request, parse_request_in_steps
from protocol.wire.response import encode_response, encode_response_in_steps
from protocol.wire.schema import Message
from server.net.connection import CloseConnection, Connection
from server.net.decoded_size import decoded_memory_bytes
from server.net.quota_usage import EXEMPT, QuotaUsage
from server.net.send_queue import Part
from server.net.shared import Reply
from server.request_context import RequestContext, error_code_of
from server.runtime.turns import Pace, in_slices
from server.security.acls import CLUSTER_NAME
from server.security.api_rules import REFUSALS, REQUEST_RULES, Rule
from server.security.audited_changes import AUDITED
from server.security.quotas.quota_limits import Client
from server.security.sasl.session import SessionExpired
from server.standby.fenced_apis import REFUSED, SERVED

if TYPE_CHECKING:
    from server.broker import Broker


_log = logging.getLogger("server.dispatch")

INLINE_FRAME_BYTES_MAX = 4 << 10
"""Requests up to this size are decoded in one go: they have a few hundred elements at most."""

INLINE_ANSWERS = frozenset({ApiKey.PRODUCE, ApiKey.HEARTBEAT, ApiKey.API_VERSIONS})
"""APIs whose answer is encoded in one go, unless the request has used up a slice of the loop: then both
may have many elements. Other answers may be much larger than their request."""

Answer = Message | Awaitable[Message | None] | None


class Handler(Protocol):
    """A module of `server/handlers`."""

    async def handle(self, request: Any, context: RequestContext) -> Answer: ...

    def refuse(
        self, request: Any, context: RequestContext, error_code: ErrorCode, message: str
    ) -> Message | None: ...


def _missing(request: Request, context: RequestContext) -> Rule | None:
    """Returns the rule for whole requests that the client does not satisfy; None if it satisfies all."""
    version = request.header.api_version
    for rule in REQUEST_RULES.get(request.api.key, ()):
        if not rule.since <= version <= rule.until:
            continue
        name = getattr(request.body, rule.field) if rule.field else CLUSTER_NAME
        if name is not None and not context.may(rule.any_of[0], rule.kind, name):
            others = rule.any_of[1:]
            if not any(context.may(other, rule.kind, name) for other in others):
                return rule
    return None


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
        if connection.sasl is not None:
            if connection.sasl.reads_raw_tokens:
                return await self._run_raw_token(frame, connection)
            self._check_login(frame, connection)
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
        if self._broker.quotas.are_set and request.api.key not in EXEMPT:
            calling = self._call_within_quotas(request, context, len(frame))
        else:
            calling = self._call_handler(request, context)
        answer = await in_slices(calling, pace)
        if answer is None or isinstance(answer, Message):
            return await self._complete(request, context, answer, start_s)
        return self._complete_later(request, context, answer, start_s)

    def _check_login(self, frame: bytearray, connection: Connection) -> None:
        """Check that a request is allowed before or after the login. Raises ProtocolError."""
        assert connection.sasl is not None
        try:
            self._broker.logins.check_request(connection.sasl, frame)
        except SessionExpired:
            self._broker.probe.expired_session_killed(connection.endpoint.name)
            raise

    async def _run_raw_token(self, frame: bytearray, connection: Connection) -> Reply:
        """Run one token that has no request around it, after SaslHandshake v0."""
        header = RequestHeader(
            api_key=ApiKey.SASL_AUTHENTICATE, api_version=0, correlation_id=0, client_id=None
        )
        context = RequestContext(self._broker, header, connection, Pace(self._broker.turns))
        module = importlib.import_module("server.handlers.shared.sasl_login")
        token: bytes | None = await module.answer_raw_token(bytes(frame), context)
        return None if token is None else [len(token).to_bytes(4, "big") + token]

    def _log_surplus(self, request: Request, connection: Connection) -> None:
        """Log, once for each API and version, that bytes after a request's end are ignored."""
        key = (request.header.api_key, request.header.api_version)
        if key not in self._with_surplus:
            self._with_surplus.add(key)
            name = f"{request.api.name} v{request.header.api_version}"
            surplus = count_text(request.surplus_bytes, "byte")
            _log.debug("%s: %s has %s after its last field, ignored", connection, name, surplus)

    async def _call_within_quotas(
        self, request: Request, context: RequestContext, size: int
    ) -> Answer:
        """Returns the handler's answer; pauses the connection if its client exceeds a quota."""
        connection, header = context.connection, request.header
        client = Client(connection.principal.name, header.client_id or "")
        usage = QuotaUsage(self._broker.quotas, client, clock=self._broker.clock.monotonic)
        context.usage = usage
        answer = await usage.timed(self._call_handler(request, context))
        if request.api.key is ApiKey.PRODUCE:
            usage.charge_produce(size)
        if answer is not None:
            # An acks=0 producer pauses only because of the bytes that it sends, as in Kafka.
            usage.charge_time()
        if not usage.pause_ms:
            return answer
        connection.throttle(usage.pause_ms / 1000)
        if answer is None:
            return None
        return usage.stamped(answer) if isinstance(answer, Message) else usage.stamped_later(answer)

    async def _call_handler(self, request: Request, context: RequestContext) -> Answer:
        """Returns the handler's answer, or a refusal if the handler raised an exception."""
        try:
            missing = None if self._broker.authorizer is None else _missing(request, context)
            if missing is not None:
                return self._refused(request, context, *REFUSALS[missing.kind])
            fence = self._broker.fence
            if fence is not None and request.api.key not in SERVED:
                code = REFUSED[request.api.key]
                return self._refused(request, context, code, fence.reason)
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
        context.pace.begin()
        try:
            message = await in_slices(answer, context.pace)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001
            message = self._refusal(request, context, error)
        return await self._complete(request, context, message, start_s)

    async def _complete(
        self, request: Request, context: RequestContext, message: Message | None, start_s: float
    ) -> list[Part] | None:
        """Encode an answer of any size, then free request and answer, in slices. Returns its parts."""
        parts = None
        if message is not None:
            if request.api.key in AUDITED and request.body is not None:
                self._broker.audit.completed(
                    context.connection, request.header, request.body, message
                )
            try:
                if request.api.key in INLINE_ANSWERS and not context.pace.has_rested:
                    parts = cast("list[Part]", encode_response(request.header, message))
                else:
                    parts = await self._encode(request.header, message, context.pace)
            except EncodeError as error:
                raise self._encode_failure(request, context, error) from error
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

    def _encode_failure(
        self, request: Request, context: RequestContext, error: EncodeError
    ) -> CloseConnection:
        """Log an answer that cannot be encoded, which is a bug of the broker. Returns what to raise."""
        what = f"{request.api.name} v{request.header.api_version}: cannot encode the answer"
        self._broker.warnings.say(context.connection, what, mistake=error)
        return CloseConnection("cannot encode the answer")

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

    def _refused(
        self, request: Request, context: RequestContext, code: ErrorCode, text: str
    ) -> Message:
        """Returns the answer for a client that lacks a permission, or asks a fenced broker for more than
        to read.

        Raises:
            CloseConnection: the client reads no answer (acks=0).
        """
        handler = self._handler(request.api)
        refusal = handler.refuse(request.body, context, code, text)
        if refusal is None:
            raise CloseConnection(f"{request.api.name}: {text}")
        return refusal

    def _handler(self, api: Api) -> Handler:
        handler = self._handlers.get(api.key)
        if handler is None:
            module = importlib.import_module(f"server.handlers.{api.key.name.lower()}")
            handler = self._handlers[api.key] = cast("Handler", module)
        return handler
