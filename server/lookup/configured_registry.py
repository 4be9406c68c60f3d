"""The decoding that a broker's configuration asks for."""

from __future__ import annotations

import ssl

from schemas.decoding_process import DecodingProcess
from schemas.registry import Registry
from schemas.registry_access import RegistryAccess, registry_url
from schemas.registry_client import RegistryClient
from server.config.config import BrokerConfig
from server.lookup.value_decoding import ValueDecoding
from server.net.listener import ListenError
from server.runtime.executors import Executors


async def value_decoding_of(config: BrokerConfig, executors: Executors) -> ValueDecoding | None:
    """Returns what decodes values by their schemas; None without a registry.

    Raises:
        ListenError: a file of `schema.registry.ssl.*` cannot be used.
    """
    if not config.schema_registry_url:
        return None
    access = RegistryAccess(
        urls=tuple(map(registry_url, config.schema_registry_url)),
        user_info=config.schema_registry_basic_auth_user_info,
        # In a thread, because it reads files.
        tls=await executors.registry.run(_tls_of, config),
    )
    return ValueDecoding(
        Registry(RegistryClient(access)),
        DecodingProcess(),
        fetching=executors.registry,
        decoding=executors.decoding,
    )


def _tls_of(config: BrokerConfig) -> ssl.SSLContext | None:
    """Returns the TLS of the client; None if no URL needs it. Raises ListenError."""
    if not any(url.startswith("https:") for url in config.schema_registry_url):
        return None
    # Imported here: most brokers have no such registry.
    from server.client.access import tls_context
    from server.client.client_properties import tls_files
    from server.client.errors import Misconfigured

    try:
        return tls_context(tls_files(config.schema_registry_tls()))
    except Misconfigured as error:
        raise ListenError(f"schema.registry.*: {error}") from error
