"""The TLS handshake of one accepted connection; a `Connection` takes over once it is complete.

    accept -> limits -> handshake (at most ssl.handshake.timeout.ms) -> principal -> Connection

An unfinished handshake counts against the limits on connections. A handshake that fails (garbage, a
client without TLS, a certificate that is not trusted) closes its connection, and leaves one line in the
log and a count in the metrics. A client that speaks TLS gets the alert that says why.

Each handshake uses the listener's context of that moment, so a new certificate needs no new listener.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

from server.config.listeners.addresses import Address
from server.net.connection import Connection, Identify
from server.net.shared import Shared
from server.net.tls_transport import TlsTransport
from server.runtime.tasks import spawn
from server.security.principal import Principal
from storage.threads import loop_thread

if TYPE_CHECKING:
    from server.security.tls_listener import TlsListener

ALERT_SECONDS = 1.0
"""How long a refused client may take to read its alert and close the connection."""
DRAIN_BYTES = 1 << 12
"""Size of the reads that discard what a refused client still sends."""

REASONS = {
    "HTTP_REQUEST": "the client speaks HTTP",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "the client's versions of TLS are not among ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the client has none of the listener's cipher suites",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, and ssl.client.auth=required",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept the broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept the broker's certificate",
}
"""What OpenSSL's reasons mean for an operator."""


@loop_thread
class TlsHandshake(asyncio.Protocol):
    """The asyncio protocol of an accepted connection whose TLS handshake is not complete.

    It reads nothing itself: the handshake runs on a duplicate of the socket. (The `ssl=` of
    `create_server` would fix the context for all connections, and hide why a handshake failed;
    `start_tls` would lose bytes that arrive before it begins.)
    """

    def __init__(
        self,
        shared: Shared,
        tls: TlsListener,
        unfinished: set[TlsHandshake],
        *,
        endpoint: Callable[[], Address],
        connection: Callable[[Identify], Connection],
    ) -> None:
        """Create the protocol of one connection.

        Args:
            unfinished: the handshakes that a stop cancels.
            endpoint: returns the advertised address of the listener.
            connection: creates the connection that takes over, with the callback that identifies its
                client.
        """
        # Constant after construction
        self._shared = shared
        self._tls = tls
        self._unfinished = unfinished
        self._endpoint = endpoint
        self._connection = connection
        # State
        self._host = ""
        self._port = 0
        self._is_counted = False
        self._task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"{self._host}:{self._port} ({self._endpoint().name})"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        accepted = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self._host, self._port = str(peer[0]), int(peer[1])
        refusal = self._shared.limits.admit(self._host, self._endpoint().name)
        if refusal is not None:
            self._shared.warnings.say(self, f"connection refused, {refusal}")
            self._shared.probe.connection_refused(self._endpoint().name)
        else:
            self._is_counted = True
            self._start(accepted)
        accepted.abort()

    def cancel(self) -> None:
        """Close the connection, because the broker stops."""
        if self._task is not None:
            self._task.cancel()

    def _start(self, accepted: asyncio.Transport) -> None:
        """Start the handshake on a duplicate of the socket, from which nothing has been read."""
        try:
            peer = socket.socket(fileno=os.dup(accepted.get_extra_info("socket").fileno()))
        except OSError as error:  # All descriptors are in use.
            self._failed(error)
            self._leave()
            return
        self._unfinished.add(self)
        self._task = spawn(self._shake(peer), "TLS handshake")

    async def _shake(self, peer: socket.socket) -> None:
        try:
            tls = await self._shaken(peer)
            connection = self._connection(self._identify)
            TlsTransport(tls, (self._host, self._port), connection).begin()
        except OSError as error:
            self._failed(error)
        finally:
            self._unfinished.discard(self)
            self._leave()

    async def _shaken(self, peer: socket.socket) -> ssl.SSLSocket:
        """Perform the handshake; if it fails, close the socket and raise OSError."""
        peer.setblocking(False)
        with closing_on_error(peer):
            # `wrap_socket` moves the descriptor to the socket that it returns.
            tls = self._tls.context.wrap_socket(
                peer, server_side=True, do_handshake_on_connect=False
            )
        with closing_on_error(tls):
            try:
                async with asyncio.timeout(self._tls.handshake_timeout_s):
                    await complete(tls)
            except TimeoutError:
                raise TimeoutError("it took longer than ssl.handshake.timeout.ms") from None
            except ssl.SSLError:
                await read_until_closed(tls)
                raise
        return tls

    def _identify(self, transport: asyncio.Transport) -> Principal:
        """Returns the identity of the client; the connection, which counts itself, calls it first."""
        self._leave()
        shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        try:
            return self._tls.principal_of(shown)
        except ValueError as error:
            self._failed(error)
            raise

    def _leave(self) -> None:
        """Give back the place among the connections."""
        if self._is_counted:
            self._is_counted = False
            self._shared.limits.leave(self._host, self._endpoint().name)

    def _failed(self, error: Exception) -> None:
        self._shared.warnings.say(self, "TLS handshake failed", f": {reason_of(error)}")
        self._shared.probe.handshake_failed(self._endpoint().name)


async def complete(tls: ssl.SSLSocket) -> None:
    """Perform a handshake on a socket that does not block. Raises OSError, of which SSLError is one."""
    loop = asyncio.get_running_loop()
    while True:
        ready = loop.create_future()
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            wait, end = loop.add_reader, loop.remove_reader
        except ssl.SSLWantWriteError:
            wait, end = loop.add_writer, loop.remove_writer
        else:
            return
        wait(tls.fileno(), _wake, ready)
        try:
            await ready
        finally:
            end(tls.fileno())


async def read_until_closed(refused: ssl.SSLSocket) -> None:
    """Wait until a refused client has closed, or for ALERT_SECONDS; then close the socket.

    OpenSSL has sent the alert. A socket that is closed with unread bytes resets its connection, and the
    client loses the alert.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(fileno=refused.detach()) as plain, suppress(OSError):  # TimeoutError is one.
        plain.setblocking(False)
        async with asyncio.timeout(ALERT_SECONDS):
            plain.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(plain, DRAIN_BYTES):
                pass


@contextmanager
def closing_on_error(peer: socket.socket) -> Iterator[None]:
    """Close a socket if the block raises."""
    try:
        yield
    except BaseException:
        peer.close()
        raise


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def reason_of(error: Exception) -> str:
    """Returns why a handshake failed, for an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted, {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return REASONS.get(error.reason or "", error.reason or str(error))
    if isinstance(error, ConnectionResetError):
        return "the client closed the connection"
    return str(error)
