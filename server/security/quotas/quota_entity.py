"""The entities that have quotas, and the values that these may have: checks in Kafka's words. Pure.

    {user=alice}                     a user
    {user=alice, client-id=app}      a user's client
    {user=<default>}                 each user without an own quota
    {ip=10.0.0.7}                    an address, for the rate of its connections

Source: KIP-546, KIP-612; Apache Kafka, ClientQuotaControlManager.java, QuotaConfig.java.
"""

from __future__ import annotations

import enum
import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
FRACTION_MAX = 1e-6
"""A whole number may differ from an integer by this much."""


class QuotaKey(enum.StrEnum):
    """The quotas. Stored and sent by these names: values never change."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


KEYS_OF_IPS = frozenset({QuotaKey.CONNECTION_CREATION_RATE})
KEYS_OF_CLIENTS = frozenset(QuotaKey) - KEYS_OF_IPS

_WHOLE_MAX = {
    QuotaKey.PRODUCER_BYTE_RATE: (LONG_MAX, "a LONG"),
    QuotaKey.CONSUMER_BYTE_RATE: (LONG_MAX, "a LONG"),
    QuotaKey.CONNECTION_CREATION_RATE: (INT_MAX, "an INT"),
}
"""The quotas that are whole numbers: their largest values, and Kafka's names of their types."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota is for. Equal entities have their parts in the same order."""

    parts: tuple[tuple[str, str | None], ...]
    """Pairs of a type and a name, sorted by type; None is the default of the type."""

    @classmethod
    def of(cls, parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
        """Returns the entity with these parts, in any order."""
        return cls(tuple(sorted(parts, key=lambda part: part[0])))

    def __str__(self) -> str:
        """Returns Kafka's text."""
        entries = ", ".join(
            f"{type_}={'null' if name is None else name}" for type_, name in self.parts
        )
        return f"ClientQuotaEntity(entries={{{entries}}})"

    @property
    def types(self) -> list[str]:
        return [type_ for type_, _ in self.parts]

    def has(self, type_: str) -> bool:
        """Returns whether it has a part of this type."""
        return any(each == type_ for each, _ in self.parts)

    def name(self, type_: str) -> str | None:
        """Returns the name of this part; None for the default, and if there is no such part."""
        return dict(self.parts).get(type_)

    def to_text(self) -> str:
        """Returns it as the metadata store's keys have it."""
        return json.dumps(dict(self.parts), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> QuotaEntity:
        """Returns the entity of a stored key."""
        return cls.of(json.loads(text).items())


def fault_of_entity(entity: QuotaEntity) -> str | None:
    """Returns why an entity cannot have quotas; None if it can."""
    if not entity.parts:
        return "Invalid empty client quota entity"
    seen = set[str]()
    for type_, name in entity.parts:
        fault = _fault_of_part(type_, name, seen)
        if fault is not None:
            return fault
        seen.add(type_)
    if IP not in seen:
        return None
    if len(seen) > 1:
        # Kafka's text lacks the same space.
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    ip = entity.name(IP)
    if ip is not None and canonical_ip(ip) is None:
        return f"{ip} is not a valid IP or resolvable host."
    return None


def fault_of_quota(entity: QuotaEntity, key: str, value: float) -> str | None:
    """Returns why an entity cannot have a quota of this value; None if it can."""
    if key not in (KEYS_OF_IPS if entity.has(IP) else KEYS_OF_CLIENTS):
        return f"Invalid configuration key {key}"
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    if key not in _WHOLE_MAX:
        return None
    most, kind = _WHOLE_MAX[QuotaKey(key)]
    if value > most:
        return f"Proposed value for {key} is too large for {kind}."
    if value % 1.0 > FRACTION_MAX:
        return f"{key} cannot be a fractional value."
    return None


def canonical_ip(text: str) -> str | None:
    """Returns an address as connections have it; None if it is none. An IPv4 address in IPv6 form is
    the IPv4 address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _fault_of_part(type_: str, name: str | None, seen: set[str]) -> str | None:
    if type_ in seen:
        return f"Invalid client quota entity, duplicate entity entry {type_}"
    if type_ not in ENTITY_TYPES:
        return f"Unhandled client quota entity type: {type_}"
    if name == "":
        return f"Empty {type_} not supported"
    return None
