"""The properties of a broker with a standby: whether another one has taken over (docs/standby.md)."""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.config_property import STRING, ConfigError, prop

FENCED_BY = "broker.fenced.by"
NAME_CHARACTERS_MAX = 200
"""The name is in the message of every refused request."""


@dataclass(frozen=True, kw_only=True)
class StandbyConfig:
    """Who has taken over from this broker."""

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

    def check_fenced_by(self) -> None:
        """Check the name of the broker that has taken over. Raises ConfigError."""
        name = self.broker_fenced_by
        if len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
            raise ConfigError(
                f"{FENCED_BY}: a name has at most {NAME_CHARACTERS_MAX} characters, all printable"
            )
