"""TLS on all listeners: made at the start, changed when clients set stores or their files change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime

from server.config.config import BrokerConfig
from server.config.listeners.addresses import Listener
from server.runtime.executors import Executor
from server.runtime.tasks import every, guarded, spawn
from server.security.tls_listener import TlsListener
from storage.threads import any_thread, loop_thread


@loop_thread
class TlsListeners:
    """The TLS of each listener that has it. Sole owner of the timer that looks at the store files."""

    __slots__ = ("_by_name", "_reading", "_watching")

    def __init__(self, by_name: Mapping[str, TlsListener], reading: Executor) -> None:
        self._by_name = by_name
        self._reading = reading
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, listeners: Iterable[Listener], config: BrokerConfig) -> TlsListeners:
        """Read the stores of all listeners with TLS, and watch their files.

        Raises:
            ConfigError: a store cannot be used, or a property is wrong.
        """
        reading = Executor("certificates", threads=1)
        by_name: dict[str, TlsListener] = {}
        try:
            for each in listeners:
                if each.security_protocol.has_tls:
                    has_sasl = each.security_protocol.has_sasl
                    by_name[each.name] = await TlsListener.open(
                        config, each.name, has_sasl=has_sasl, reading=reading
                    )
        except BaseException:
            reading.close()
            raise
        opened = cls(by_name, reading)
        opened._watch(config.ssl_store_check_interval_ms / 1000)
        return opened

    def get(self, listener: str) -> TlsListener | None:
        """Returns the TLS of a listener; None if it has none."""
        return self._by_name.get(listener)

    @any_thread
    def expiries(self) -> dict[str, datetime]:
        """Returns when the certificate of each listener expires, in UTC."""
        return {name: each.expires_at for name, each in self._by_name.items()}

    async def check(self, config: BrokerConfig) -> None:
        """Check that every listener could use a configuration. Raises ConfigError."""
        for each in self._by_name.values():
            await each.check(config)

    async def follow(self, config: BrokerConfig) -> None:
        """Use the stores that a changed configuration names."""
        for each in self._by_name.values():
            await each.follow(config)

    async def reload_changed(self) -> None:
        """Read the stores whose files have changed; continue with the next if one fails."""
        for each in self._by_name.values():
            with guarded("certificate reload"):
                await each.reload_if_changed()

    async def stop(self) -> None:
        """Stop watching, and end the thread."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._reading.close()

    def _watch(self, interval_s: float) -> None:
        if self._by_name:
            watch = every(interval_s, self.reload_changed, "certificate reload")
            self._watching = spawn(watch, "certificate reload")
