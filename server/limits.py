"""How much peers may take of the broker: connections, and memory for their requests.

Both are counts without I/O; `server/connection.py` asks them and acts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class ConnectionLimits:
    """Who is connected, over all listeners (`max.connections`, `max.connections.per.ip`)."""

    __slots__ = ("_by_ip", "_connections_max", "_per_ip_max", "count")

    def __init__(self, *, connections_max: int, connections_per_ip_max: int) -> None:
        self._connections_max = connections_max
        self._per_ip_max = connections_per_ip_max
        # State: count is the sum of _by_ip, which holds no zeros.
        self._by_ip: Counter[str] = Counter()
        self.count = 0

    def configure(self, *, connections_max: int, connections_per_ip_max: int) -> None:
        """Go by other limits; who is connected stays."""
        self._connections_max = connections_max
        self._per_ip_max = connections_per_ip_max

    def admit(self, ip: str) -> str | None:
        """Count a connection in; or say which limit refuses it, and count nothing."""
        if self.count >= self._connections_max:
            return f"max.connections={self._connections_max} is reached"
        if self._by_ip[ip] >= self._per_ip_max:
            return f"max.connections.per.ip={self._per_ip_max} is reached for {ip}"
        self._by_ip[ip] += 1
        self.count += 1
        return None

    def leave(self, ip: str) -> None:
        """Count out a connection that was admitted."""
        self.count -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]


class RequestMemory:
    """Bytes of requests that were received and not yet answered (`queued.max.request.bytes`).

    The bound is soft by one request a connection: a frame that is on its way when the bound is
    reached is still taken. Connections stop reading until there is room again.
    """

    __slots__ = ("_bytes_max", "_waiting", "held_bytes")

    def __init__(self, *, bytes_max: int) -> None:
        """`bytes_max` below 0 sets no bound (Kafka's default)."""
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._waiting: dict[Callable[[], None], None] = {}

    def hold(self, size: int) -> None:
        """Count a request in."""
        self.held_bytes += size

    def give_back(self, size: int) -> None:
        """Count a request out, and tell those who wait if there is room now."""
        self.held_bytes -= size
        if self._waiting and self.has_room:
            waiting, self._waiting = self._waiting, {}
            for tell in waiting:
                tell()

    @property
    def has_room(self) -> bool:
        """Whether another request may be read."""
        return self._bytes_max < 0 or self.held_bytes < self._bytes_max

    def when_room(self, tell: Callable[[], None]) -> None:
        """Call `tell` once, as soon as there is room; asking twice changes nothing."""
        self._waiting[tell] = None
