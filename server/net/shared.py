"""The objects and settings that all connections of a broker share, and how they run requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from metrics.server_probe import ServerProbe
from protocol.wire.frame import RECEIVE_BYTES
from server.net.answer_sender import AnswerSender
from server.net.limits import AnswerMemory, ConnectionLimits, RequestMemory
from server.net.send_queue import Part
from server.net.sparing_log import SparingLog
from server.runtime.cold_reads import ColdReads
from server.runtime.turns import Turns
from server.security.quotas.connection_rates import ConnectionRates
from server.security.sasl.logins import Logins

if TYPE_CHECKING:
    from server.net.connection import Connection

IN_FLIGHT_REQUESTS_MAX = 64
"""Bound on the received, unanswered requests of one connection; clients send up to 5, some 12."""

OUTBOX_BYTES_MAX = 1 << 20
"""The connection's next request waits while this many bytes of earlier replies are unsent."""

Reply = list[Part] | Awaitable[list[Part] | None] | None
"""What dispatch returns: the response's parts, an awaitable of them, or None for no response."""


class Dispatch(Protocol):
    """Runs one request. `server/dispatch.py` implements it."""

    async def __call__(self, frame: bytearray, connection: Connection) -> Reply:
        """Returns the reply; raises ProtocolError to close the connection without one."""


D = TypeVar("D")


class Shortcut(Protocol[D]):
    """Runs some requests in the callback that received them: `server/shortcut/plain.py`."""

    def run(self, frame: bytearray, connection: Connection) -> D | None:
        """Run a request that waits for nothing but the disk. Returns None if it must be queued instead;
        then nothing has happened."""

    def waits_for_others(self, frame: bytearray) -> bool:
        """Returns whether this request usually waits for other requests."""

    def complete_now(self, done: D) -> list[Part] | None:
        """Returns the answer, and counts the request; None if the answer has to wait for the disk."""

    def when_durable(self, done: D, then: Callable[[bytes | bytearray], None]) -> None:
        """Call `then` with the answer once it is known; it may come at once."""

    def start_round(self) -> None:
        """Start the sync that answers wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The objects and settings that all connections of a broker share."""

    dispatch: Dispatch
    limits: ConnectionLimits
    memory: RequestMemory
    answers: AnswerMemory
    sender: AnswerSender
    turns: Turns
    cold_reads: ColdReads
    probe: ServerProbe
    warnings: SparingLog
    connections: set[Connection]
    shortcut: Shortcut[Any]
    frame_bytes_max: int
    logins: Logins | None = None
    """The logins of SASL listeners; None if there is no such listener."""
    in_flight_requests_max: int = IN_FLIGHT_REQUESTS_MAX
    outbox_bytes_max: int = OUTBOX_BYTES_MAX
    rates: ConnectionRates | None = None
    """How fast connections may be created; None: no bound."""
    receive_buffer: bytearray = field(default_factory=lambda: bytearray(RECEIVE_BYTES))
    """Where the frames of all connections begin (`FrameBuffer`)."""
    newcomers: dict[Connection, None] = field(default_factory=dict)
    """The connections that have not sent a whole request, in the order in which they came."""
