"""The properties of a broker with a standby: whether another one has taken over (docs/standby.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.formats.config_property import LIST, STRING, ConfigError, prop

FENCED_BY = "broker.fenced.by"
NAME_CHARACTERS_MAX = 300
"""The name is in the message of every refused request."""
PEER = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[0-9A-Za-z\-%._]{1,253}):([0-9]{1,5})")
PORT_MAX = 65535
SERVE, WAIT = "serve", "wait"
"""What a broker does that reaches none of its peers."""


@dataclass(frozen=True, kw_only=True)
class StandbyConfig:
    """Who has taken over from this broker, and whom it asks about that."""

    __slots__ = ()

    broker_fenced_by: str = prop(
        FENCED_BY,
        STRING,
        default="",
        of_one_broker=True,
        doc="The name of the broker that has taken over. While it is set, this broker is fenced: it"
        " opens only the listener of inter.broker.listener.name, where it serves what reads, and writes"
        " nothing by itself. Setting or removing it makes the broker start again within its process."
        " AlterConfigs, which replaces all properties, keeps it unless it names it. Specific to"
        " Kompakt.",
    )

    standby_peers: tuple[str, ...] = prop(
        "standby.peers",
        LIST,
        default=(),
        dynamic=False,
        doc="host:port of the internal listeners of the brokers that may have taken over. Before this"
        " broker opens its listeners, it asks them in which term they lead the metadata. If one was"
        " promoted since this broker led, this one sets broker.fenced.by and starts fenced. Specific to"
        " Kompakt.",
    )
    standby_peers_config: str = prop(
        "standby.peers.config",
        STRING,
        default="",
        dynamic=False,
        doc="A file of client properties with Kafka's names (security.protocol, sasl.jaas.config,"
        " ssl...) for the connections to standby.peers. The user needs ClusterAction there. Specific to"
        " Kompakt.",
    )
    standby_on_lost_peer: str = prop(
        "standby.on.lost.peer",
        STRING,
        default=SERVE,
        choices=(SERVE, WAIT),
        dynamic=False,
        doc="What a broker does that starts and reaches none of standby.peers: serve, or wait until one"
        " answers. A broker that waits opens its internal listener only, as a fenced one. Specific to"
        " Kompakt.",
    )

    def check_peers(self) -> None:
        """Check the addresses of the peers. Raises ConfigError."""
        for peer in self.standby_peers:
            found = PEER.fullmatch(peer)
            if not found or not 0 < int(found[2]) <= PORT_MAX:
                raise ConfigError(f"standby.peers: {peer or 'an empty value'} is not host:port")

    def check_fenced_by(self) -> None:
        """Check the name of the broker that has taken over. Raises ConfigError."""
        name = self.broker_fenced_by
        if len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
            raise ConfigError(
                f"{FENCED_BY}: a name has at most {NAME_CHARACTERS_MAX} characters, all printable"
            )
