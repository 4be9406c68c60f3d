"""What `kompakt doctor` finds out about listeners with TLS."""

from __future__ import annotations

import socket
import ssl
from datetime import datetime

from cli.doctor.findings import Finding, fault, fine, warning
from server.config.config import BrokerConfig
from server.config.listeners.addresses import Listener
from storage.formats.config_property import ConfigError

CHECK = "certificate"
SOON_DAYS = 30
TIMEOUT_SECONDS = 5.0
RENEW = "renew it; a running broker takes a changed store by itself"


def check_certificate(listener: Listener, config: BrokerConfig, now: datetime) -> Finding:
    """Returns whether a listener could serve TLS with its stores, and for how long."""
    # Imported here: most configurations have no TLS.
    from server.security.tls_context import make_context

    has_sasl = listener.security_protocol.has_sasl
    try:
        made = make_context(config, listener.name, has_sasl=has_sasl)
    except ConfigError as error:
        return fault(CHECK, str(error), "fix it: kompakt serve would exit with code 1")
    return judge_expiry(listener.name, made.expires_at, now)


def judge_expiry(listener: str, expires_at: datetime, now: datetime) -> Finding:
    """Returns a fault for a certificate that has expired, and a warning for one that soon will."""
    text = f"the certificate of {listener} is valid until {expires_at:%Y-%m-%d %H:%M} UTC"
    left = expires_at - now
    if left.total_seconds() <= 0:
        expired = f"the certificate of {listener} expired at {expires_at:%Y-%m-%d %H:%M} UTC"
        return fault(CHECK, expired, RENEW)
    return warning(CHECK, text, RENEW) if left.days < SOON_DAYS else fine(CHECK, text)


def judge_tls_port(listener: Listener) -> Finding:
    """Returns whether the program that uses a listener's port speaks TLS at the advertised address."""
    advertised = listener.advertised
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The question is who listens there; a client that sends something decides on its own.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((advertised.host, advertised.port), TIMEOUT_SECONDS) as peer,
            context.wrap_socket(peer, server_hostname=advertised.host),
        ):
            pass
    except OSError as error:
        if not (isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")):
            return fault(
                "listener",
                f"port {listener.bind.port} is in use, but {advertised.host}:{advertised.port} does"
                f" not speak TLS: {error}",
                "if another program uses the port, choose another in listeners; if a broker does, fix"
                " its advertised.listeners",
            )
    return fine("listener", f"TLS is served at {advertised.host}:{advertised.port}")
