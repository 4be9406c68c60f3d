"""TLS on one listener: the context for new handshakes, the names of clients, reloaded stores.

The stores are read again when their files change, and when clients set the listener's properties. New
connections get the new certificate; those that exist keep theirs. A store that cannot be used is
refused, and the one before it stays.
"""

from __future__ import annotations

import logging
import os
import ssl
from datetime import datetime

from server.config.config import BrokerConfig
from server.config.listeners.overrides import texts_of_listener
from server.runtime.executors import Executor
from server.security.distinguished_name import subject_of
from server.security.principal import ANONYMOUS, Principal, user
from server.security.principal_mapping import PrincipalMapping
from server.security.tls_context import TlsContext, make_context
from storage.formats.config_property import ConfigError
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.security.tls")

Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, size and time of each store file; None for one that is missing."""


@loop_thread
class TlsListener:
    """Sole owner of the TLS context of one listener."""

    __slots__ = ("_config", "_has_sasl", "_loaded", "_mapping", "_reading", "_stamp", "name")

    def __init__(
        self,
        config: BrokerConfig,
        name: str,
        *,
        has_sasl: bool,
        reading: Executor,
        mapping: PrincipalMapping,
        stamp: Stamp,
        loaded: TlsContext,
    ) -> None:
        """Call `open` instead."""
        # Constant after construction
        self.name = name
        self._has_sasl = has_sasl
        self._reading = reading
        self._mapping = mapping
        # State: the context, and what it was made of.
        self._config = config
        self._stamp = stamp
        self._loaded = loaded

    @classmethod
    async def open(
        cls, config: BrokerConfig, name: str, *, has_sasl: bool, reading: Executor
    ) -> TlsListener:
        """Read the stores of a listener, in a thread of `reading`.

        Raises:
            ConfigError: a store cannot be used, or a property is wrong.
        """
        own = config.for_listener(name)
        mapping = PrincipalMapping.parse(own.ssl_principal_mapping_rules)
        # Taken before the files are read: the next check sees a change in between.
        stamp = await reading.run(stamp_of, own.store_files)
        loaded = await reading.run(make_context, config, name, has_sasl=has_sasl)
        return cls(
            config,
            name,
            has_sasl=has_sasl,
            reading=reading,
            mapping=mapping,
            stamp=stamp,
            loaded=loaded,
        )

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        return self._loaded.context

    @property
    def handshake_timeout_s(self) -> float:
        return self._config.for_listener(self.name).ssl_handshake_timeout_ms / 1000

    @property
    @any_thread
    def expires_at(self) -> datetime:
        """When the first certificate of the listener's chain expires, in UTC."""
        return self._loaded.expires_at

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Returns the identity of a client that showed this certificate (DER), or none.

        On a SASL listener the mechanism gives the identity, so the certificate gives none.

        Raises:
            NoMatchingRule: no rule of `ssl.principal.mapping.rules` applies.
            ValueError: the certificate is malformed.
        """
        if certificate is None or self._has_sasl:
            return ANONYMOUS
        return user(self._mapping.name_of(subject_of(certificate)))

    async def check(self, config: BrokerConfig) -> None:
        """Check that the listener could use the stores of a configuration. Raises ConfigError."""
        if self._differs(config):
            await self._made(config)

    async def follow(self, config: BrokerConfig) -> None:
        """Use the stores of a configuration that clients have set, if it names others than before."""
        if self._differs(config):
            await self._load(config)

    async def reload_if_changed(self) -> None:
        """Read the stores again if their files have changed since they were read."""
        files = self._config.for_listener(self.name).store_files
        if await self._reading.run(stamp_of, files) != self._stamp:
            await self._load(self._config)

    def _differs(self, config: BrokerConfig) -> bool:
        now, then = config.listener_texts, self._config.listener_texts
        return texts_of_listener(now, self.name) != texts_of_listener(then, self.name)

    async def _load(self, config: BrokerConfig) -> None:
        files = config.for_listener(self.name).store_files
        stamp = await self._reading.run(stamp_of, files)
        try:
            loaded = await self._made(config)
        except ConfigError as error:
            _log.error("listener %s keeps its certificate: %s", self.name, error)
        else:
            self._loaded = loaded
            _log.info(
                "listener %s has a new certificate, valid until %s", self.name, loaded.expires_at
            )
        self._config, self._stamp = config, stamp

    async def _made(self, config: BrokerConfig) -> TlsContext:
        return await self._reading.run(make_context, config, self.name, has_sasl=self._has_sasl)


def stamp_of(files: tuple[str, ...]) -> Stamp:
    """Returns what changes when the content of the files does. Blocks."""
    return tuple(_stamp(file) for file in files)


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - a path as text
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
