"""`listener.name.<name>.<property>`: a property that holds for one listener only.

    listener.name.internal.ssl.keystore.location=/etc/kompakt/internal.pem

The listener's name is written in lower case. A listener without such a text has the broker-wide value.
A property takes part if its declaration says so (`by_listener`).

Source: KIP-103, KIP-226; Apache Kafka, ListenerName.java (configPrefix), DynamicBrokerConfig.scala.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from storage.formats.config_property import (
    ByListener,
    ConfigProperty,
    problems_in,
    properties_of,
)

PREFIX = "listener.name."
OVERRIDE = re.compile(r"listener\.name\.([^.]+)\.(.+)")


def prefix_of(listener: str) -> str:
    """Returns the start of the names of a listener's own properties."""
    return f"{PREFIX}{listener.lower()}."


def override_declared(config: type[Any], name: str) -> ConfigProperty | None:
    """Returns the declaration of `listener.name.<name>.<property>`; None if it declares nothing.

    The declaration has the full name. It is dynamic if clients may set it while the broker runs.
    """
    found = OVERRIDE.fullmatch(name)
    if found is None:
        return None
    declared = next(
        (each for each in properties_of(config).values() if each.name == found[2]), None
    )
    if declared is None or declared.by_listener is ByListener.NO:
        return None
    return replace(declared, name=name, dynamic=declared.by_listener is ByListener.WHILE_RUNNING)


def overrides_in(config: type[Any], texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the texts that override a property for one listener, by their full names."""
    return {
        name: text
        for name, text in texts.items()
        if name.startswith(PREFIX) and override_declared(config, name) is not None
    }


def override_problems(config: type[Any], texts: Mapping[str, str]) -> list[str]:
    """Returns a message for each override whose value is wrong."""
    declared = {name: override_declared(config, name) for name in texts}
    return problems_in({name: each for name, each in declared.items() if each is not None}, texts)


def texts_of_listener(overrides: Mapping[str, str], listener: str) -> dict[str, str]:
    """Returns the texts that hold for one listener, by the names of the properties they override."""
    prefix = prefix_of(listener)
    return {
        name.removeprefix(prefix): text
        for name, text in overrides.items()
        if name.startswith(prefix)
    }


def listeners_in(overrides: Iterable[str]) -> set[str]:
    """Returns the listeners, in lower case, that the overrides are for."""
    return {found[1] for name in overrides if (found := OVERRIDE.fullmatch(name)) is not None}
