"""Refuses listeners that any machine on the network could use without authentication.

A listener on a loopback address is reached by programs of this machine only. On any other address a
client must authenticate: by SASL, or with a certificate (SSL with `ssl.client.auth=required`). An
operator who wants an open listener says so with `allow.unauthenticated.listeners=true`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from server.config.listeners.addresses import (
    HTTP,
    HttpListener,
    Listener,
    SecurityProtocol,
    is_loopback,
)
from storage.formats.config_property import ConfigError

WAY_OUT = "or set allow.unauthenticated.listeners=true if everyone on its network may use it"


def refuse_open_listeners(
    listeners: Sequence[Listener],
    http: HttpListener | None,
    *,
    http_logins: Sequence[str] = (),
    client_auth: Callable[[str], str],
) -> None:
    """Check that every listener on a network authenticates its clients.

    Args:
        http_logins: the schemes of `http.authentication`.
        client_auth: returns `ssl.client.auth` of the listener with that name.

    Raises:
        ConfigError: one does not. The text names it and says what to do.
    """
    for listener in listeners:
        authenticates = listener.security_protocol.has_sasl or (
            listener.security_protocol is SecurityProtocol.SSL
            and client_auth(listener.name) == "required"
        )
        if not authenticates and not is_loopback(listener.bind.host):
            raise ConfigError(
                f"listeners: {listener.bind} is open to the network and asks clients for no"
                f" authentication: {_remedy(listener)}, bind it to 127.0.0.1, {WAY_OUT}"
            )
    if http is not None and not is_loopback(http.host):
        _refuse_open_http(http, http_logins, client_auth(HTTP))


def _refuse_open_http(http: HttpListener, logins: Sequence[str], client_auth: str) -> None:
    if not http.has_tls and logins:
        raise ConfigError(
            f"http.listener: passwords and tokens would be sent to {http} without encryption: use"
            " https://, bind it to 127.0.0.1, or set allow.unauthenticated.listeners=true if something"
            " else encrypts the connections"
        )
    if not logins and not (http.has_tls and client_auth == "required"):
        raise ConfigError(
            f"http.listener: {http.host or '*'}:{http.port} is open to the network and asks clients for"
            f" no authentication: set http.authentication and use https://, bind it to 127.0.0.1,"
            f" {WAY_OUT}"
        )


def _remedy(listener: Listener) -> str:
    if listener.security_protocol is SecurityProtocol.SSL:
        return "set ssl.client.auth=required"
    return "map it to SSL or a SASL protocol in listener.security.protocol.map"
