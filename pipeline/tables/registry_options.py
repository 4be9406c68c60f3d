"""How a job reaches a schema registry: by its options, and a file that keeps passwords off the line."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.offsets.cut import TableRefused
from schemas.registry_access import BadRegistryUrl, RegistryAccess, registry_url

USER_INFO = "schema.registry.basic.auth.user.info"
TRUSTED = "schema.registry.ssl.truststore.location"
KNOWN = frozenset({USER_INFO, TRUSTED})


def registry_access(urls: Sequence[str] | None, config: Path | None) -> RegistryAccess | None:
    """Returns how to reach the registry of a job; None if it has none.

    Raises:
        TableRefused: the options make no sense, or a file cannot be read.
    """
    if not urls:
        if config is not None:
            raise TableRefused("--schema-registry-config goes with --schema-registry")
        return None
    found = {} if config is None else _properties(config)
    if unknown := sorted(found.keys() - KNOWN):
        raise TableRefused(
            f"--schema-registry-config has {unknown[0]}: there are {', '.join(KNOWN)}"
        )
    try:
        return RegistryAccess(
            urls=tuple(map(registry_url, urls)),
            user_info=found.get(USER_INFO, ""),
            tls=_trusting(found.get(TRUSTED)),
        )
    except BadRegistryUrl as error:
        raise TableRefused(f"--schema-registry: {error}") from error


def _properties(config: Path) -> Mapping[str, str]:
    # Every job imports this module; few have such a file.
    from server.client.client_properties import read_properties
    from server.client.errors import Misconfigured

    try:
        return read_properties(config)
    except Misconfigured as error:
        raise TableRefused(f"--schema-registry-config {error}") from error


def _trusting(certificates: str | None) -> ssl.SSLContext | None:
    if certificates is None:
        return None
    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise TableRefused(f"{TRUSTED}={certificates} cannot be read: {error}") from error
