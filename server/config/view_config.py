"""The part of the broker's configuration that is about the views of topics' last values."""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.config_property import BOOLEAN, STRING, ConfigError, prop

SUFFIX = "view.suffix"


@dataclass(frozen=True, kw_only=True)
class ViewConfig:
    """What the views are called, and who sees them (`server/views/`)."""

    __slots__ = ()

    view_suffix: str = prop(
        SUFFIX,
        STRING,
        default=".latest",
        dynamic=False,
        doc="What is added to the name of a compacted topic for the view of its last values, a topic"
        " that can only be read. No topic with such a name is created automatically. Empty: there are no"
        " views. Specific to Kompakt.",
    )
    view_list: bool = prop(
        "view.list",
        BOOLEAN,
        default=False,
        dynamic=False,
        doc="Whether lists of all topics have the views. Tools that copy or count all topics would then"
        " do so twice. Specific to Kompakt.",
    )

    def check_view_suffix(self) -> None:
        """Raise ConfigError if no topic could have such a name."""
        # Imported here, because the names of topics are not part of the configuration.
        from server.topics.names import LEGAL

        if self.view_suffix and not LEGAL.fullmatch(self.view_suffix):
            raise ConfigError(
                f"{SUFFIX}: {self.view_suffix} has characters that names of topics cannot have"
            )
