"""Keeps the alert of a failed TLS handshake, which tells the client why it failed.

asyncio and uvloop close a connection whose handshake fails without sending what OpenSSL has written for
the peer: a client with an expired certificate would only see its connection end. `AlertContext` takes
the alert when the handshake fails, and hands it over with the error. For a peer that does not speak TLS
OpenSSL writes none. That is right: Kafka's clients would read it as the size of an answer, 352 MB.
"""

from __future__ import annotations

import ssl


class AlertContext(ssl.SSLContext):
    """A context whose failed handshakes leave their alert in the error, for `alert_of`."""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Returns an SSLObject, as the transports of event loops create them."""
        wrapped = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(wrapped, _AlertingObject)
        wrapped.outgoing = outgoing
        return wrapped


class _AlertingObject(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            error.alert = self.outgoing.read()  # type: ignore[attr-defined]
            raise


AlertContext.sslobject_class = _AlertingObject


def alert_of(error: Exception) -> bytes:
    """Returns the bytes that tell the client why its handshake failed; empty if there are none."""
    alert: bytes = getattr(error, "alert", b"")
    return alert
