"""`listeners` and `advertised.listeners`: where we listen, and where clients connect.

    listeners            PLAINTEXT://0.0.0.0:9092,OUTSIDE://:9094
    advertised.listeners PLAINTEXT://kompakt:9092,OUTSIDE://localhost:9094

A client connects once to its bootstrap address, and from then on to the *advertised* address of that
listener. An advertised address that clients cannot reach is the most common mistake of all, so this
module refuses those that are obviously wrong.

Source: Apache Kafka, SocketServerConfigs.java, KafkaConfig.validateAdvertisedListeners.
"""

from __future__ import annotations

import enum
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from storage.formats.config_property import ConfigError

ENDPOINT = re.compile(
    r"([A-Za-z0-9_.\-]+)://(\[[0-9A-Fa-f:.%\w]*\]|[0-9A-Za-z\-%._]*):([0-9]{1,5})"
)
HTTP_ADDRESS = re.compile(
    r"(?:(https?)://)?(\[[0-9A-Fa-f:.%\w]*\]|[0-9A-Za-z\-%._]*):([0-9]{1,5})/?"
)
HTTP_SCHEMES = ("basic", "bearer")
"""How clients of the HTTP endpoint may log in."""
HTTP = "HTTP"
"""The name of the HTTP endpoint in `listener.name.http.<property>`, in metrics and in the log."""
META_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - they are refused
PORT_MAX = 65535


class SecurityProtocol(enum.Enum):
    """How clients of a listener are encrypted and authenticated. Source: SecurityProtocol.java."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


PROTOCOLS_KNOWN = tuple(SecurityProtocol.__members__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One `NAME://host:port`. An empty host means every address of the machine."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener to open, and the address that its clients get in metadata."""

    bind: Address
    advertised: Address
    """Its port is 0 if the system chooses the port when the listener opens."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def name(self) -> str:
        return self.bind.name

    def advertised_at(self, bound_port: int) -> Address:
        """Returns the advertised address of the listener once it is bound to `bound_port`."""
        if self.advertised.port:
            return self.advertised
        return Address(name=self.name, host=self.advertised.host, port=bound_port)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpListener:
    """Where the HTTP endpoint listens; an empty host means every address."""

    host: str
    port: int
    has_tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.has_tls else ''}://{host or '*'}:{self.port}"

    def as_listener(self) -> Listener:
        """Returns it in the form of the other listeners."""
        address = Address(name=HTTP, host=self.host, port=self.port)
        protocol = SecurityProtocol.SSL if self.has_tls else SecurityProtocol.PLAINTEXT
        return Listener(bind=address, advertised=address, security_protocol=protocol)


def is_loopback(host: str) -> bool:
    """Returns whether only programs on this machine reach a listener that is bound to `host`.

    A name other than localhost counts as an address on a network, whatever it resolves to.
    """
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def parse_addresses(property_name: str, text: str) -> tuple[Address, ...]:
    """Returns the addresses of a `listeners` text, in its order. Raises ConfigError."""
    addresses = tuple(_parse_address(property_name, part) for part in text.split(","))
    names = [address.name for address in addresses]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{property_name}: {text} names the listener {twice} twice")
    return addresses


def resolve_listeners(
    *, listeners: str, advertised: str, protocol_map: Sequence[str], controllers: Sequence[str]
) -> tuple[Listener, ...]:
    """Returns the listeners to open, with their advertised addresses, except those of controllers.

    Raises:
        ConfigError: a text is malformed, a protocol is not served, or no client could reach an
            advertised address.
    """
    protocols = _parse_protocol_map(protocol_map)
    bound = [a for a in parse_addresses("listeners", listeners) if a.name not in controllers]
    if not bound:
        raise ConfigError(f"listeners: {listeners} has no listener for clients")
    _refuse_shared_ports(bound)
    named = {a.name: a for a in parse_addresses("advertised.listeners", advertised or listeners)}
    unknown = set(named) - {address.name for address in bound} - set(controllers)
    if unknown:
        raise ConfigError(
            f"advertised.listeners: {advertised} has {min(unknown)}, which is not in listeners"
        )
    for address in bound:
        if address.name not in named:
            raise ConfigError(f"advertised.listeners: {advertised} is missing {address.name}")
    return tuple(
        Listener(
            bind=a,
            advertised=_routable(named[a.name], a),
            security_protocol=_protocol_of(a, protocols),
        )
        for a in bound
    )


def check_inter_broker(*, name: str, protocol: str, listeners: Sequence[Listener]) -> None:
    """Check `inter.broker.listener.name` or `security.inter.broker.protocol`, as far as they are set.

    Raises:
        ConfigError: both are set, or no listener has that name.

    Source: Apache Kafka, KafkaConfig.getInterBrokerListenerNameAndSecurityProtocol.
    """
    if name and protocol:
        raise ConfigError(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
        )
    wanted = name or protocol
    names = [listener.name for listener in listeners]
    if wanted and wanted not in names:
        raise ConfigError(
            f"{'inter.broker.listener.name' if name else 'security.inter.broker.protocol'}: {wanted}"
            " must be a listener name defined in advertised.listeners. The valid options based on"
            f" currently configured listeners are {','.join(names)}"
        )


def parse_http_listener(text: str) -> HttpListener | None:
    """Returns the address in `[http[s]://]host:port`; None for an empty text. Raises ConfigError."""
    if not text:
        return None
    found = HTTP_ADDRESS.fullmatch(text)
    if not found or int(found[3]) > PORT_MAX:
        raise ConfigError(f"http.listener: {text} is not host:port or https://host:port")
    return HttpListener(host=found[2].strip("[]"), port=int(found[3]), has_tls=found[1] == "https")


def _parse_address(property_name: str, text: str) -> Address:
    found = ENDPOINT.fullmatch(text.strip())
    if not found:
        raise ConfigError(f"{property_name}: {text or 'an empty value'} is not NAME://host:port")
    if int(found[3]) > PORT_MAX:
        raise ConfigError(f"{property_name}: port {found[3]} is out of range: 0 to {PORT_MAX}")
    return Address(name=found[1].upper(), host=found[2].strip("[]"), port=int(found[3]))


def _parse_protocol_map(entries: Sequence[str]) -> dict[str, str]:
    protocols = {name: name for name in PROTOCOLS_KNOWN}
    for entry in entries:
        name, colon, protocol = entry.partition(":")
        if not colon or protocol.upper() not in PROTOCOLS_KNOWN:
            raise ConfigError(
                f"listener.security.protocol.map: {entry} is not NAME:PROTOCOL with one of "
                + ", ".join(PROTOCOLS_KNOWN)
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def _protocol_of(address: Address, protocols: dict[str, str]) -> SecurityProtocol:
    protocol = protocols.get(address.name)
    if protocol is None:
        raise ConfigError(
            f"listeners: {address}: listener.security.protocol.map has no protocol for"
            f" {address.name}"
        )
    return SecurityProtocol[protocol]


def _refuse_shared_ports(addresses: Sequence[Address]) -> None:
    seen: set[tuple[str, int]] = set()
    for address in addresses:
        if address.port and (address.host, address.port) in seen:
            raise ConfigError(f"listeners: {address}: another listener has the same host and port")
        seen.add((address.host, address.port))


def _routable(advertised: Address, bound: Address) -> Address:
    """Returns the advertised address, with this machine's name if it has no host."""
    if advertised.host in META_ADDRESSES:
        raise ConfigError(
            f"advertised.listeners: {advertised} cannot be reached: clients connect to this address,"
            " so it must be one of this machine's names or addresses"
        )
    if advertised.port == 0 and bound.port != 0:
        raise ConfigError(f"advertised.listeners: {advertised}: clients cannot connect to port 0")
    if advertised.host:
        return advertised
    return Address(name=advertised.name, host=socket.gethostname(), port=advertised.port)
