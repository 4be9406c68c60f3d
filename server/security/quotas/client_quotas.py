"""What clients have used of their quotas, and how long they must pause.

    produce, fetch    bytes a second                 beyond the bound, the client pauses
    request           percent of the loop's time     the same
    mutation          partitions created, deleted    refused beyond the bound; old clients pause

A rate exists only for clients that have a quota. Rates are forgotten an hour after their last use, and
beyond a bound the one that was used least recently goes first: clients choose their ids.

Source: KIP-13, KIP-124, KIP-219, KIP-599; Apache Kafka, ClientQuotaManager.scala,
ClientRequestQuotaManager.scala, ControllerMutationQuotaManager.scala.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from server.config.quota_config import QuotaConfig
from server.security.quotas.quota_entity import QuotaEntity, QuotaKey
from server.security.quotas.quota_limits import Client, Limit, QuotaLimits
from server.security.quotas.rates import Rate, TokenBucket, Windows, refill_ms, throttle_ms
from storage.threads import any_thread, loop_thread

M = TypeVar("M")

IDLE_MS_MAX = 3_600_000
"""Kafka's InactiveSensorExpirationTimeSeconds."""

MEASURES_MAX = 20_000
"""The most rates of one quota; each takes up to half a kilobyte."""


class Measures(Generic[M]):
    """The rates or buckets of one quota by client, in the order of their last use."""

    __slots__ = ("_by_client", "_count_max", "_create")

    def __init__(self, create: Callable[[], M], *, count_max: int = MEASURES_MAX) -> None:
        self._create = create
        self._count_max = count_max
        self._by_client: dict[Client, tuple[M, float]] = {}

    def __len__(self) -> int:
        return len(self._by_client)

    def use(self, client: Client, now_ms: float) -> M:
        """Returns the measure of a client, created if there is none, as the one used last."""
        known = self._by_client.pop(client, None)
        measure = self._create() if known is None else known[0]
        self._by_client[client] = (measure, now_ms)
        if known is None:
            self._forget(now_ms)
        return measure

    def recent(self, count: int) -> list[tuple[Client, M]]:
        """Returns the clients that were active last, at most `count`. Any thread may call it."""
        # Copied in one step of the interpreter, because the loop's thread may change it meanwhile.
        known = list(dict(self._by_client).items())
        return [(client, measure) for client, (measure, _) in reversed(known[-count:])]

    def clear(self) -> None:
        """Forget all."""
        self._by_client.clear()

    def _forget(self, now_ms: float) -> None:
        """Forget the idle ones, and one if there are too many."""
        while self._by_client:
            oldest = next(iter(self._by_client))
            is_idle = now_ms - self._by_client[oldest][1] >= IDLE_MS_MAX
            if not is_idle and len(self._by_client) <= self._count_max:
                return
            del self._by_client[oldest]


class ClientUse(NamedTuple):
    """How much a client uses of a quota, for metrics."""

    user: str
    client_id: str
    value: float
    """Units a second; of mutations, the tokens that are left."""


class _Quota(Generic[M]):
    """The values of one quota, with what clients have used of it."""

    __slots__ = ("_limits", "_measures", "_windows")

    def __init__(self, windows: Windows, create: Callable[[], M]) -> None:
        self._windows = windows
        self._limits = QuotaLimits()
        self._measures = Measures(create)

    def __len__(self) -> int:
        """Returns how many entities have a value."""
        return len(self._limits)

    def set(self, entity: QuotaEntity, bound: float | None) -> None:
        """Set the value of an entity; None removes it."""
        self._limits.set(entity, bound)
        if not self._limits:
            self._measures.clear()


class RateQuota(_Quota[Rate]):
    """A quota on a rate, such as produced bytes a second."""

    __slots__ = ("_throttle_ms_max",)

    def __init__(self, windows: Windows, *, throttle_ms_max: int | None = None) -> None:
        """`throttle_ms_max` bounds a pause; None: no bound."""
        super().__init__(windows, Rate)
        self._throttle_ms_max = throttle_ms_max

    def record(self, client: Client, amount: float, now_ms: float) -> int:
        """Add to what a client has used. Returns how long it must pause, in ms; 0 if it need not."""
        limit = self._limits.find(client)
        if limit is None:
            return 0
        rate = self._measures.use(limit.sharer, now_ms)
        rate.record(amount, self._windows, now_ms)
        per_second = rate.per_second(self._windows, now_ms)
        pause_ms = throttle_ms(per_second, limit.bound, rate.span_ms(self._windows, now_ms))
        return pause_ms if self._throttle_ms_max is None else min(pause_ms, self._throttle_ms_max)

    def take_back(self, client: Client, amount: float, now_ms: float) -> None:
        """Subtract what was recorded but was not sent."""
        limit = self._limits.find(client)
        if limit is not None:
            self._measures.use(limit.sharer, now_ms).record(-amount, self._windows, now_ms)

    def at_once_max(self, client: Client) -> float | None:
        """Returns the largest amount that does not always lead to a pause; None: no bound."""
        limit = self._limits.find(client)
        if limit is None:
            return None
        return limit.bound * (self._windows.count - 1) * self._windows.seconds

    def uses(self, count: int, now_ms: float) -> list[ClientUse]:
        """Returns the rates of the clients that were active last, at most `count`. Any thread may call
        it."""
        return [
            ClientUse(*client, rate.copy().per_second(self._windows, now_ms))
            for client, rate in self._measures.recent(count)
        ]


class MutationQuota(_Quota[TokenBucket]):
    """The quota on partitions that clients create and delete (KIP-599)."""

    __slots__ = ()

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows, TokenBucket)

    def admit(self, client: Client, count: int, now_ms: float) -> int:
        """Take `count` tokens unless the bucket is overdrawn already.

        Returns 0, or after how many ms the client may try again; nothing was taken then.
        """
        limit = self._limits.find(client)
        if limit is None:
            return 0
        bucket = self._measures.use(limit.sharer, now_ms)
        pause_ms = self._pause_ms(bucket, limit, now_ms)
        if not pause_ms:
            bucket.take(count, limit.bound, self._windows, now_ms)
        return pause_ms

    def record(self, client: Client, count: int, now_ms: float) -> int:
        """Take `count` tokens in any case. Returns how long the client must pause, in ms."""
        limit = self._limits.find(client)
        if limit is None:
            return 0
        bucket = self._measures.use(limit.sharer, now_ms)
        bucket.take(count, limit.bound, self._windows, now_ms)
        return self._pause_ms(bucket, limit, now_ms)

    def uses(self, count: int, now_ms: float) -> list[ClientUse]:
        """Returns the tokens that clients have left, of those that were active last, at most `count`.
        Any thread may call it."""
        return [
            ClientUse(*client, bucket.copy().tokens(bucket.bound, self._windows, now_ms))
            for client, bucket in self._measures.recent(count)
        ]

    def _pause_ms(self, bucket: TokenBucket, limit: Limit, now_ms: float) -> int:
        return refill_ms(bucket.tokens(limit.bound, self._windows, now_ms), limit.bound)


@loop_thread
class ClientQuotas:
    """The quotas of users and client ids, with what each client has used."""

    __slots__ = ("_by_key", "_on_pause", "are_set", "fetch", "mutation", "produce", "request")

    def __init__(
        self,
        windows: Windows,
        *,
        mutation_windows: Windows,
        on_pause: Callable[[str, float], None] = lambda _, __: None,
    ) -> None:
        """`on_pause` is called with a quota and the seconds for which a client must pause."""
        self._on_pause = on_pause
        self.produce = RateQuota(windows)
        self.fetch = RateQuota(windows)
        self.request = RateQuota(windows, throttle_ms_max=windows.size_ms)
        self.mutation = MutationQuota(mutation_windows)
        self._by_key: dict[QuotaKey, RateQuota | MutationQuota] = {
            QuotaKey.PRODUCER_BYTE_RATE: self.produce,
            QuotaKey.CONSUMER_BYTE_RATE: self.fetch,
            QuotaKey.REQUEST_PERCENTAGE: self.request,
            QuotaKey.CONTROLLER_MUTATION_RATE: self.mutation,
        }
        # Derived
        self.are_set = False
        """Whether any entity has a quota. If not, requests pay for nothing but this test."""

    def set(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        """Set one quota of a user, a client id or both; None removes it. It applies at once.

        Raises:
            KeyError: users and client ids have no such quota.
            ValueError: there is no such quota.
        """
        self._by_key[QuotaKey(key)].set(entity, value)
        self.are_set = any(map(len, self._by_key.values()))

    def throttled(self, key: QuotaKey, pause_ms: int) -> None:
        """Report a pause of a client."""
        self._on_pause(key, pause_ms / 1000)

    @any_thread
    def uses(self, count: int, now_ms: float) -> dict[str, list[ClientUse]]:
        """Returns, by quota, what the clients use that were active last, at most `count`."""
        return {key: quota.uses(count, now_ms) for key, quota in self._by_key.items()}


def windows_of(config: QuotaConfig) -> Windows:
    """Returns the windows over which rates are measured."""
    return Windows(count=config.quota_window_num, seconds=config.quota_window_size_seconds)


def quotas_of(config: QuotaConfig, *, on_pause: Callable[[str, float], None]) -> ClientQuotas:
    """Returns the quotas of a broker, none of them set."""
    mutation_windows = Windows(
        count=config.controller_quota_window_num,
        seconds=config.controller_quota_window_size_seconds,
    )
    return ClientQuotas(windows_of(config), mutation_windows=mutation_windows, on_pause=on_pause)
