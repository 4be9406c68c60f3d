"""Bounds how fast connections are created: over all listeners, by listener, by address.

A connection beyond the rate of the broker or of its listener waits for its turn: it is open, but not
read. So clients that reconnect all at once are served one after the other. A connection beyond the rate
of its address is closed, after a pause that keeps the client from trying again at once. Pure.

Kafka stops accepting instead of letting connections wait; clients see the same, and the other listeners
of this broker are not held up.

Source: KIP-612; Apache Kafka, SocketServer.scala (ConnectionQuotas).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from server.security.quotas.client_quotas import Measures
from server.security.quotas.quota_entity import INT_MAX, canonical_ip
from server.security.quotas.quota_limits import Client
from server.security.quotas.rates import Rate, TokenBucket, Windows, refill_ms, throttle_ms
from storage.threads import loop_thread


class Welcome(NamedTuple):
    """How a new connection begins."""

    wait_ms: int
    """For how long it is not read."""
    is_refused: bool
    """Whether it is closed then."""


AT_ONCE = Welcome(0, is_refused=False)

WAIT_MS_MAX = 30_000
"""A connection that would have to wait for longer is refused: most clients give up by then."""


class _Bound:
    """A bound on connections a second, for the broker or for one listener."""

    __slots__ = ("_bucket", "per_second")

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self._bucket = TokenBucket()

    def wait_ms(self, windows: Windows, now_ms: float) -> int:
        """Returns for how long one more connection would have to wait."""
        if not self.per_second:
            return WAIT_MS_MAX + 1
        tokens = self._bucket.tokens(self.per_second, windows, now_ms) - 1
        return refill_ms(tokens, self.per_second)

    def take(self, windows: Windows, now_ms: float) -> None:
        """Count one connection."""
        self._bucket.take(1, self.per_second, windows, now_ms)


@loop_thread
class ConnectionRates:
    """How fast connections were created, and how fast they may be."""

    __slots__ = ("_bounds", "_ip_bounds", "_ip_default", "_ip_rates", "_windows", "are_bound")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # State: by listener; None is the whole broker. No bound is INT_MAX, Kafka's default.
        self._bounds: dict[str | None, _Bound] = {}
        self._ip_bounds: dict[str, float] = {}
        self._ip_default: float | None = None
        self._ip_rates = Measures(Rate)
        # Derived
        self.are_bound = False
        """Whether there is any bound. If not, new connections pay for nothing but this test."""

    def configure(self, broker: int, listeners: Mapping[str, int]) -> None:
        """Change the bounds of the broker and of its listeners, in connections a second."""
        kept: dict[str | None, _Bound] = {}
        for name, per_second in ((None, broker), *listeners.items()):
            if per_second < INT_MAX:
                kept[name] = self._bounds.get(name) or _Bound(per_second)
                kept[name].per_second = per_second
        self._bounds = kept
        self._derive()

    def set_ip(self, ip: str | None, per_second: float | None) -> None:
        """Change the bound of an address, or of each address without its own; None removes it."""
        if ip is None:
            self._ip_default = per_second
        elif per_second is None:
            self._ip_bounds.pop(canonical_ip(ip) or ip, None)
        else:
            self._ip_bounds[canonical_ip(ip) or ip] = per_second
        self._derive()

    def welcome(self, listener: str, ip: str, now_ms: float) -> Welcome:
        """Count a new connection. Returns how it begins; one that is refused does not count."""
        refused = self._refuse_ip(canonical_ip(ip) or ip, now_ms)
        if refused is not None:
            return refused
        bounds = [each for each in map(self._bounds.get, (None, listener)) if each is not None]
        wait_ms = max((each.wait_ms(self._windows, now_ms) for each in bounds), default=0)
        if wait_ms > WAIT_MS_MAX:
            return Welcome(0, is_refused=True)
        for each in bounds:
            each.take(self._windows, now_ms)
        return Welcome(wait_ms, is_refused=False)

    def _refuse_ip(self, ip: str, now_ms: float) -> Welcome | None:
        bound = self._ip_bounds.get(ip, self._ip_default)
        if bound is None:
            return None
        rate = self._ip_rates.use(Client("", ip), now_ms)
        rate.record(1, self._windows, now_ms)
        span_ms = rate.span_ms(self._windows, now_ms)
        pause_ms = throttle_ms(rate.per_second(self._windows, now_ms), bound, span_ms)
        if not pause_ms:
            return None
        rate.record(-1, self._windows, now_ms)
        return Welcome(min(pause_ms, self._windows.size_ms), is_refused=True)

    def _derive(self) -> None:
        has_ips = bool(self._ip_bounds) or self._ip_default is not None
        self.are_bound = bool(self._bounds) or has_ips
