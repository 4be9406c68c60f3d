"""What `kompakt dump-log` shows of the metadata's values: without passwords and what replaces them.

/links/            client properties of other clusters: their names
/broker_configs/   all but the passwords of stores
/scram             nothing: with a verifier one can log in, or try passwords
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from server.config import broker_configs
from server.replication import link_spec
from server.security import scram_store

HIDDEN = "<hidden>"
BY_PREFIX: Mapping[str, Callable[[str], str]] = {
    link_spec.LINKS: link_spec.without_secrets,
    broker_configs.PREFIX: broker_configs.without_secrets,
    scram_store.PREFIX: lambda _: HIDDEN,
    scram_store.DECOY_KEY: lambda _: HIDDEN,
}


def shown_value(key: str, value: str) -> str:
    """Returns the value of a key as people may see it."""
    for prefix, shown in BY_PREFIX.items():
        if key.startswith(prefix):
            return shown(value)
    return value


def shown_operations(operations: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Returns the operations of a transaction with their values as people may see them."""
    return [
        [verb, rest[0], shown_value(rest[0], rest[1]), *rest[2:]] if verb == "put" else each
        for each in operations
        for verb, *rest in (each,)
    ]
