"""What an operator says about a link, and how it is stored.

/links/<name>   {"bootstrap": "host:port,...", "properties": {...}, "topics": [...], "patterns": [...],
                 "groups": [...], "acls": false, "compaction": "off", "resync": "manual",
                 "bytes_per_second": null, "paused": false}

The client properties may hold a password. They are in the metadata store as they were given, which only
the broker's user can read, and in no answer, no log and no output of dump-log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from server.client.access import Access, access_of
from server.client.broker_client import parse_address
from server.client.errors import Misconfigured
from server.coordination.groups.holds import LINK_GROUP_PREFIX
from server.topics.name_patterns import InvalidPattern, compiled_pattern
from server.topics.names import fault_of_name
from server.topics.topic import INTERNAL_TOPICS
from storage.formats.config_property import LONG_MAX

LINKS = "/links/"
NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}", re.ASCII)
COMPACTIONS = ("off", "on")
RESYNCS = ("manual", "auto")
"""When a partition that has failed is copied once more: if an operator says so, or also by itself."""
ASIDE = "aside"
"""The mode of a standby that has led before: also if its log diverges, which is then put aside."""
TOPICS_MAX = 10_000
PATTERNS_MAX = 100
PATTERN_MEMORY_MAX = 1 << 19
"""Bytes. 100 usual patterns need a tenth of it; to compile what fills it takes some milliseconds."""
BYTES_PER_SECOND_MIN = 1_024
ALTERABLE = frozenset({"bytes_per_second", "groups", "resync"})
"""What `altered_link` changes."""
STANDBY_LINK = "standby"
"""The name of a standby's only link."""
INTERNAL = "__"
"""Topics whose names begin so are the source's own."""
HIDDEN = "<hidden>"


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
    """Regular expressions of RE2 that match a whole name."""
    groups: tuple[str, ...] = ()
    """Regular expressions like `patterns`: groups of the source whose committed offsets go along."""
    takes_acls: bool = False
    """Whether the source's ACLs of the mirrored topics go along."""
    compaction: str = "off"
    """Whether its mirrors are compacted by this broker."""
    resync: str = "manual"
    """Whether mirrors that may lack tombstones are copied once more without an operator (`RESYNCS`,
    `ASIDE`)."""
    bytes_per_second: int | None = None
    """How fast it copies; None: no limit."""
    is_paused: bool = False
    is_standby: bool = False
    """Whether this broker is a standby of the source: all topics but the coordinators' are mirrored,
    with their ids. Never stored."""
    own_group: str = ""
    """The name of a standby's group at the source, which may have several; empty: the link's."""
    own_access: Access | None = field(default=None, repr=False)
    """How a standby connects, which it knows from its command; None: as `properties` say."""

    @property
    def group(self) -> str:
        """The group at the source whose offsets say how far the mirrors are."""
        return LINK_GROUP_PREFIX + (self.own_group or self.name)

    def topic_filter(self) -> Callable[[str], bool]:
        """Returns a function that says whether the link mirrors a topic of the source. Keep it while
        many names are asked: it compiles the patterns."""
        if self.is_standby:
            return lambda name: name not in INTERNAL_TOPICS
        names = frozenset(self.topics)
        if not self.patterns:
            return names.__contains__
        matches = _any_of(self.patterns).fullmatch
        return lambda name: (
            name in names or (not name.startswith(INTERNAL) and matches(name) is not None)
        )

    def group_filter(self) -> Callable[[str], bool] | None:
        """Returns a function that says whether the offsets of a group of the source go along; None if
        those of none do. The groups of links say how far mirrors of the source's topics are
        elsewhere."""
        if not self.groups:
            return None
        matches = _any_of(self.groups).fullmatch
        return lambda name: not name.startswith(LINK_GROUP_PREFIX) and matches(name) is not None

    @property
    def takes_every_topic(self) -> bool:
        """Whether the source has to be asked for all of its topics."""
        return self.is_standby or bool(self.patterns)

    def paused(self, is_paused: bool) -> LinkSpec:
        """Returns the link, paused or not."""
        return replace(self, is_paused=is_paused)

    def access(self) -> Access:
        """Returns how to connect to the source. Raises Misconfigured."""
        return self.own_access or access_of(self.properties)

    def shown(self) -> dict[str, Any]:
        """Returns what people may see."""
        return {
            "name": self.name,
            "bootstrap": self.bootstrap,
            "properties": sorted(self.properties),
            "topics": list(self.topics),
            "patterns": list(self.patterns),
            "groups": list(self.groups),
            "acls": self.takes_acls,
            "compaction": self.compaction,
            "resync": self.resync,
            "bytes_per_second": self.bytes_per_second,
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
    groups: list[str] = []
    acls: bool = False
    compaction: str = "off"
    resync: str = "manual"
    bytes_per_second: int | None = None
    paused: bool = False


def parse_link(name: str, content: bytes | str) -> LinkSpec:
    """Returns the link that an operator describes as JSON; its client properties can work now.

    Raises:
        BadLink: with what is wrong.
    """
    spec = stored_link(name, content)
    try:
        spec.access()
    except Misconfigured as error:
        raise BadLink(f"link {name}: {error}") from error
    return spec


def stored_link(name: str, content: bytes | str) -> LinkSpec:
    """Returns a link of the metadata store. A file that its properties name may be gone since.

    Raises:
        BadLink: with what is wrong.
    """
    if not NAME.fullmatch(name):
        raise BadLink(
            f"{name[:120]!r} is no name of a link: 1 to 100 letters, digits, dots, - and _"
        )
    try:
        given = msgspec.json.decode(content, type=_Content)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadLink(f"link {name}: {error}") from error
    spec = LinkSpec(
        name=name,
        bootstrap=given.bootstrap,
        properties=given.properties,
        topics=tuple(given.topics),
        patterns=tuple(given.patterns),
        groups=tuple(given.groups),
        takes_acls=given.acls,
        compaction=given.compaction,
        resync=given.resync,
        bytes_per_second=given.bytes_per_second,
        is_paused=given.paused,
    )
    fault = _fault_of_topics(spec) or _fault_of_source(spec)
    if fault:
        raise BadLink(f"link {name}{fault}")
    if spec.compaction not in COMPACTIONS:
        raise BadLink(f"compaction {spec.compaction!r} is not one of {', '.join(COMPACTIONS)}")
    if spec.resync not in RESYNCS:
        raise BadLink(f"resync {spec.resync!r} is not one of {', '.join(RESYNCS)}")
    rate = spec.bytes_per_second
    if rate is not None and not BYTES_PER_SECOND_MIN <= rate <= LONG_MAX:
        raise BadLink(
            f"link {name}: bytes_per_second is {rate}: give at least {BYTES_PER_SECOND_MIN}, or null for"
            " no limit"
        )
    return spec


def altered_link(spec: LinkSpec, content: bytes | str) -> LinkSpec:
    """Returns a link with the changes that an operator describes as JSON; what they leave out stays.

    Raises:
        BadLink: with what is wrong.
    """
    try:
        changes = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadLink(f"link {spec.name}: {error}") from error
    if others := sorted(changes.keys() - ALTERABLE):
        raise BadLink(
            f"link {spec.name}: {others[0][:120]!r} cannot be changed: only"
            f" {', '.join(sorted(ALTERABLE))}"
        )
    return stored_link(spec.name, json.dumps(json.loads(spec.stored()) | changes))


def without_secrets(content: str) -> str:
    """Returns the stored form of a link with the values of its client properties hidden."""
    try:
        fields = json.loads(content)
        fields["properties"] = {name: HIDDEN for name, _ in fields["properties"].items()}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return HIDDEN
    return json.dumps(fields, separators=(",", ":"))


def _fault_of_source(spec: LinkSpec) -> str:
    addresses = [each for each in map(str.strip, spec.bootstrap.split(",")) if each]
    if not addresses:
        return " names no broker of its source: give HOST:PORT"
    try:
        for address in addresses:
            parse_address(address)
    except Misconfigured as error:
        return f": {error}"
    return ""


def _fault_of_topics(spec: LinkSpec) -> str:
    if not spec.topics and not spec.patterns:
        return " names no topic: give names or patterns"
    if len(spec.topics) > TOPICS_MAX:
        return f" names more than {TOPICS_MAX} topics: use patterns"
    for name in spec.topics:
        if fault := _fault_of_topic(name):
            return f": {fault}"
    return _fault_of_patterns("pattern", spec.patterns) or _fault_of_patterns("group", spec.groups)


def _fault_of_patterns(what: str, patterns: tuple[str, ...]) -> str:
    if len(patterns) > PATTERNS_MAX:
        return f" has more than {PATTERNS_MAX} {what}s"
    for pattern in patterns:
        try:
            compiled_pattern(pattern, memory_bytes_max=PATTERN_MEMORY_MAX)
        except InvalidPattern as error:
            return f": {what} {pattern[:120]!r}: {error}"
    try:
        _any_of(patterns)
    except InvalidPattern as error:
        return f": its {what}s together: {error}"
    return ""


def _fault_of_topic(name: str) -> str | None:
    if name.startswith(INTERNAL):
        return f"{name[:120]} is the source's own: kompakt standby follows groups and transactions"
    return fault_of_name(name)


def _any_of(patterns: tuple[str, ...]) -> Any:
    """Returns the expression that matches what one of these does. Raises InvalidPattern."""
    together = "|".join(f"(?:{each})" for each in patterns)
    return compiled_pattern(together, memory_bytes_max=PATTERN_MEMORY_MAX)
