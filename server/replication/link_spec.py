"""What an operator says about a link, and how it is stored.

/links/<name>   {"bootstrap": "host:port,...", "properties": {...}, "topics": [...], "patterns": [...],
                 "compaction": "off", "paused": false}

The client properties may hold a password. They are in the metadata store as they were given, which only
the broker's user can read, and in no answer and no log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from server.client.access import Access, access_of
from server.client.broker_client import parse_address
from server.client.errors import Misconfigured

LINKS = "/links/"
NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}", re.ASCII)
GROUP_PREFIX = "__mirror."
COMPACTIONS = ("off", "on")
TOPICS_MAX = 10_000
INTERNAL = "__"
"""Topics whose names begin so are the source's own."""


class BadLink(Exception):
    """A link that cannot work, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """One link."""

    name: str
    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    """Regular expressions that match a whole name."""
    compaction: str = "off"
    """Whether its mirrors are compacted by this broker."""
    is_paused: bool = False

    @property
    def group(self) -> str:
        """The group at the source whose offsets say how far the mirrors are."""
        return GROUP_PREFIX + self.name

    def follows(self, topic: str) -> bool:
        """Returns whether the link mirrors a topic of the source."""
        if topic in self.topics:
            return True
        return not topic.startswith(INTERNAL) and any(
            re.fullmatch(pattern, topic) for pattern in self.patterns
        )

    def paused(self, is_paused: bool) -> LinkSpec:
        """Returns the link, paused or not."""
        return replace(self, is_paused=is_paused)

    def access(self) -> Access:
        """Returns how to connect to the source. Raises Misconfigured."""
        return access_of(self.properties)

    def shown(self) -> dict[str, Any]:
        """Returns what people may see."""
        return {
            "name": self.name,
            "bootstrap": self.bootstrap,
            "properties": sorted(self.properties),
            "topics": list(self.topics),
            "patterns": list(self.patterns),
            "compaction": self.compaction,
            "paused": self.is_paused,
        }

    def stored(self) -> str:
        """Returns the value in the metadata store."""
        content = self.shown() | {"properties": dict(self.properties)}
        del content["name"]
        return json.dumps(content, separators=(",", ":"))


class _Content(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A link as JSON."""

    bootstrap: str
    properties: dict[str, str] = {}
    topics: list[str] = []
    patterns: list[str] = []
    compaction: str = "off"
    paused: bool = False


def parse_link(name: str, content: bytes | str) -> LinkSpec:
    """Returns the link that JSON describes. Raises BadLink with what is wrong."""
    if not NAME.fullmatch(name):
        raise BadLink(
            f"{name[:120]!r} is no name of a link: 1 to 100 letters, digits, dots, - and _"
        )
    try:
        given = msgspec.json.decode(content, type=_Content)
    except msgspec.DecodeError as error:
        raise BadLink(f"link {name}: {error}") from error
    spec = LinkSpec(
        name=name,
        bootstrap=given.bootstrap,
        properties=given.properties,
        topics=tuple(given.topics),
        patterns=tuple(given.patterns),
        compaction=given.compaction,
        is_paused=given.paused,
    )
    _check(spec)
    return spec


def _check(spec: LinkSpec) -> None:
    if not spec.topics and not spec.patterns:
        raise BadLink(f"link {spec.name} names no topic: give names or patterns")
    if len(spec.topics) + len(spec.patterns) > TOPICS_MAX:
        raise BadLink(f"link {spec.name} names more than {TOPICS_MAX} topics")
    if spec.compaction not in COMPACTIONS:
        raise BadLink(f"compaction {spec.compaction!r} is not one of {', '.join(COMPACTIONS)}")
    internal = next((name for name in spec.topics if name.startswith(INTERNAL)), None)
    if internal is not None:
        raise BadLink(
            f"{internal} is the source's own: kompakt standby follows groups and transactions"
        )
    for pattern in spec.patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadLink(f"pattern {pattern!r}: {error}") from error
    try:
        for address in filter(None, map(str.strip, spec.bootstrap.split(","))):
            parse_address(address)
        spec.access()
    except Misconfigured as error:
        raise BadLink(f"link {spec.name}: {error}") from error
