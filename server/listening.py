"""The listeners of one broker: their certificates, their limits, and where they are open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from server.config.config import BrokerConfig
from server.config.listeners.addresses import Listener
from server.net.limits import ConnectionLimits
from server.net.listener import ListenError, Listeners
from server.security.quotas.client_quotas import windows_of
from server.security.quotas.connection_rates import ConnectionRates
from storage.formats.config_property import ConfigError
from storage.threads import any_thread

if TYPE_CHECKING:
    from server.security.tls_listener import TlsListener
    from server.security.tls_listeners import TlsListeners


class Listening:
    """Opens the listeners, and applies changed properties to them."""

    __slots__ = (
        "_config",
        "_has_certificates",
        "_listeners",
        "_tls",
        "addresses",
        "limits",
        "rates",
    )

    def __init__(self, config: BrokerConfig) -> None:
        """
        Args:
            config: without what clients have set.
        """
        # Constant after construction
        self._config = config
        self.limits = ConnectionLimits(
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
        )
        self.rates = ConnectionRates(windows_of(config))
        # State
        self._has_certificates = asyncio.Event()
        self._tls: TlsListeners | None = None
        self._listeners: Listeners | None = None
        self.addresses: dict[str, tuple[str, int]] = {}
        """The advertised host and port of each open listener, by its name."""

    async def open_certificates(self, config: BrokerConfig) -> None:
        """Read the certificates of listeners with TLS. Raises ListenError if one cannot be used."""
        listeners = self._config.tls_listeners()
        if listeners:
            # Imported here: a broker without TLS starts without its libraries.
            from server.security.tls_listeners import TlsListeners

            try:
                self._tls = await TlsListeners.open(listeners, config)
            except ConfigError as error:
                raise ListenError(str(error)) from None
        self._has_certificates.set()

    async def wait_for_certificates(self) -> None:
        """Wait until `open_certificates` has read them."""
        await self._has_certificates.wait()

    def tls_of(self, listener: str) -> TlsListener | None:
        """Returns the TLS of a listener, or of the HTTP endpoint; None if it has none."""
        return None if self._tls is None else self._tls.get(listener)

    @any_thread
    def certificate_expiries(self) -> dict[str, datetime]:
        """Returns when the certificate of each listener with TLS expires, in UTC."""
        return {} if self._tls is None else self._tls.expiries()

    async def open(self, listeners: Listeners, *, opens: Callable[[Listener], bool]) -> None:
        """Open the listeners of the configuration that `opens` wants.

        Raises:
            ListenError: an address is in use or does not belong to this machine.
        """
        self._listeners = listeners
        for listener in filter(opens, self._config.resolved_listeners()):
            advertised = await listeners.open(listener, self.tls_of(listener.name))
            self.addresses[advertised.name] = (advertised.host, advertised.port)

    async def check(self, config: BrokerConfig) -> None:
        """Check the certificates of a changed configuration. Raises ConfigError."""
        if self._tls is not None:
            await self._tls.check(config)

    async def follow(self, config: BrokerConfig) -> None:
        """Use the certificates that a changed configuration names."""
        if self._tls is not None:
            await self._tls.follow(config)

    def limit(self, config: BrokerConfig) -> None:
        """Apply the limits on connections."""
        self.limits.configure(
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
            by_ip=config.connections_max_by_ip(),
            by_listener=config.limits_by_listener("max_connections"),
        )
        self.rates.configure(
            config.max_connection_creation_rate,
            config.limits_by_listener("max_connection_creation_rate"),
        )

    async def stop(self) -> None:
        """Answer what has arrived, for as long as a stop may take, and close all connections."""
        if self._listeners is not None:
            await self._listeners.stop(grace_s=self._config.controlled_shutdown_timeout_ms / 1000)
        if self._tls is not None:
            await self._tls.stop()
