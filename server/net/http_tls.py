"""TLS for the HTTP endpoint: each accepted connection gets its handshake with the newest certificate.

    accept -> handshake (at most ssl.handshake.timeout.ms) -> the protocol of an HTTP connection

As on other listeners (`tls_handshake.py`), the handshake runs on a duplicate of the accepted socket.
After it, the loop's own transport is enough here: the endpoint has few connections.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from server.config.listeners.addresses import HTTP
from server.net.tls_handshake import reason_of
from server.runtime.tasks import spawn
from storage.threads import loop_thread

if TYPE_CHECKING:
    from metrics.server_probe import ServerProbe
    from server.net.sparing_log import SparingLog
    from server.security.tls_listener import TlsListener

UNFINISHED_MAX = 100
"""Handshakes at the same time. A further connection is closed at once."""
SHUTDOWN_SECONDS = 2.0
"""How long a closed connection waits for the client's last TLS message."""

MakeProtocol = Callable[[], asyncio.Protocol]


@loop_thread
class HttpTls:
    """Performs the handshakes of the HTTP endpoint."""

    __slots__ = ("_probe", "_tls", "_unfinished", "_warnings")

    def __init__(self, tls: TlsListener, warnings: SparingLog, probe: ServerProbe) -> None:
        # Constant after construction
        self._tls = tls
        self._warnings = warnings
        self._probe = probe
        # State
        self._unfinished: set[asyncio.Task[None]] = set()

    def over(self, make: MakeProtocol) -> MakeProtocol:
        """Returns the protocols of accepted connections; after the handshake `make` gives the next."""
        return lambda: _Accepted(self, make)

    def stop(self) -> None:
        """Give up the handshakes that are not finished."""
        for task in tuple(self._unfinished):
            task.cancel()

    def begin(self, accepted: asyncio.Transport, make: MakeProtocol) -> None:
        """Start the handshake on a duplicate of the socket, from which nothing has been read."""
        host = str((accepted.get_extra_info("peername") or ("",))[0])
        if len(self._unfinished) >= UNFINISHED_MAX:
            self._failed(host, f"{UNFINISHED_MAX} others are not finished")
            return
        try:
            peer = socket.socket(fileno=os.dup(accepted.get_extra_info("socket").fileno()))
        except OSError as error:  # All descriptors are in use.
            self._failed(host, str(error))
            return
        task = spawn(self._shake(peer, host, make), "TLS handshake")
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)

    async def _shake(self, peer: socket.socket, host: str, make: MakeProtocol) -> None:
        peer.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                make,
                peer,
                ssl=self._tls.context,
                ssl_handshake_timeout=self._tls.handshake_timeout_s,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except OSError as error:
            peer.close()
            self._failed(host, reason_of(error))

    def _failed(self, host: str, reason: str) -> None:
        self._warnings.say(f"{host} ({HTTP})", "TLS handshake failed", f": {reason}")
        self._probe.handshake_failed(HTTP)


class _Accepted(asyncio.Protocol):
    """An accepted connection, until its handshake begins."""

    def __init__(self, tls: HttpTls, make: MakeProtocol) -> None:
        self._tls = tls
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        accepted = cast("asyncio.Transport", transport)
        self._tls.begin(accepted, self._make)
        accepted.abort()
