"""What one request uses of its client's quotas, and the pause that follows.

Exists only while quotas are set, and not for requests that Kafka does not throttle either.

    handler runs, timed -> charge -> the answer names the pause -> the connection pauses

Source: KIP-219, KIP-124; Apache Kafka, RequestHandlerHelper.scala, KafkaApis.scala.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message
from server.security.quotas.client_quotas import ClientQuotas
from server.security.quotas.quota_entity import QuotaKey
from server.security.quotas.quota_limits import Client
from server.topics.topic import TopicRefused

T = TypeVar("T")

EXEMPT = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS})
"""APIs that are never throttled: a client that logs in has no identity yet; brokers send the last."""

MUTATION_REFUSED = TopicRefused(
    error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    message="The throttling quota has been exceeded.",
)


class QuotaUsage:
    """What one request has used, until its answer is on its way."""

    __slots__ = (
        "_client",
        "_clock",
        "_is_time_charged",
        "_quotas",
        "_resumed_s",
        "_spent_s",
        "_until_ms",
    )  # fmt: skip

    def __init__(self, quotas: ClientQuotas, client: Client, *, clock: Callable[[], float]) -> None:
        """`clock` returns monotonic seconds; rates and pauses are measured with it."""
        self._quotas = quotas
        self._client = client
        self._clock = clock
        # State
        self._spent_s = 0.0
        self._resumed_s = time.perf_counter()
        self._until_ms = 0.0
        self._is_time_charged = False

    @property
    def pause_ms(self) -> int:
        """How much longer the client must pause; 0 if it need not."""
        return max(0, round(self._until_ms - self._now_ms())) if self._until_ms else 0

    def timed(self, work: Awaitable[T]) -> Awaitable[T]:
        """Returns `work`, which counts the time that it takes of the loop, without its waits."""
        return _Timed(self, work)

    def charge_produce(self, size: int) -> None:
        """Count a Produce request of `size` bytes."""
        self._pause(
            QuotaKey.PRODUCER_BYTE_RATE,
            self._quotas.produce.record(self._client, size, self._now_ms()),
        )

    def fetch_bytes_max(self, asked: int) -> int:
        """Returns how many bytes a Fetch may return: more always lead to a pause."""
        most = self._quotas.fetch.at_once_max(self._client)
        return asked if most is None else int(min(asked, most))

    def charge_fetch(self, size: int) -> bool:
        """Count a Fetch answer of `size` bytes. Returns whether it may be sent.

        If not, an empty answer must be sent instead, and the bytes do not count.
        """
        now_ms = self._now_ms()
        self.charge_time()
        self._pause(
            QuotaKey.CONSUMER_BYTE_RATE, self._quotas.fetch.record(self._client, size, now_ms)
        )
        if not self._until_ms:
            return True
        self._quotas.fetch.take_back(self._client, size, now_ms)
        return False

    def charge_mutations(self, count: int, *, is_strict: bool) -> TopicRefused | None:
        """Count partitions that are created or deleted.

        Args:
            is_strict: the client knows THROTTLING_QUOTA_EXCEEDED, so that it can be refused.

        Returns:
            Why it must not happen now, or None.
        """
        quota, now_ms = self._quotas.mutation, self._now_ms()
        if not is_strict:
            pause_ms = quota.record(self._client, count, now_ms)
            self._pause(QuotaKey.CONTROLLER_MUTATION_RATE, pause_ms)
            return None
        pause_ms = quota.admit(self._client, count, now_ms)
        self._pause(QuotaKey.CONTROLLER_MUTATION_RATE, pause_ms)
        return MUTATION_REFUSED if pause_ms else None

    def add_work(self, seconds: float) -> None:
        """Count time that a thread has spent for the request, like time of the loop."""
        self._spent_s += seconds

    def charge_time(self) -> None:
        """Count the time that was used so far, once."""
        if self._is_time_charged:
            return
        self._is_time_charged = True
        spent_s = self._spent_s + time.perf_counter() - self._resumed_s
        pause_ms = self._quotas.request.record(self._client, spent_s * 100, self._now_ms())
        self._pause(QuotaKey.REQUEST_PERCENTAGE, pause_ms)

    def stamped(self, message: Message) -> Message:
        """Returns the answer with the rest of the pause in it."""
        pause_ms = self.pause_ms
        if not pause_ms or not hasattr(message, "throttle_time_ms"):
            return message
        declared: Any = message
        stamped: Message = dataclasses.replace(declared, throttle_time_ms=pause_ms)
        return stamped

    async def stamped_later(self, answer: Awaitable[Message | None]) -> Message | None:
        """Returns the answer with the rest of the pause in it, once it is ready."""
        message = await answer
        return None if message is None else self.stamped(message)

    def _pause(self, key: QuotaKey, pause_ms: int) -> None:
        if pause_ms:
            self._quotas.throttled(key, pause_ms)
            self._until_ms = max(self._until_ms, self._now_ms() + pause_ms)

    def _now_ms(self) -> float:
        return self._clock() * 1000


class _Timed(Awaitable[T]):
    """Awaits some work, and counts for how long it runs between its waits."""

    __slots__ = ("_usage", "_work")

    def __init__(self, usage: QuotaUsage, work: Awaitable[T]) -> None:
        self._usage = usage
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._work.__await__()
        resume, value = steps.send, None
        while True:
            self._usage._resumed_s = time.perf_counter()
            try:
                waits_for = resume(value)
            except StopIteration as ended:
                result: T = ended.value
                return result
            self._usage._spent_s += time.perf_counter() - self._usage._resumed_s
            try:
                value = yield waits_for
                resume = steps.send
            except BaseException as error:  # noqa: BLE001 - cancellation goes to the work
                resume, value = steps.throw, error
