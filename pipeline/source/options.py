"""Options for reading segment files: those of Spark's Kafka source that make sense here.

Names ignore case, as everywhere in Spark. An unknown option is refused, because ignoring a filter
would produce a wrong table. Options about the connection to a broker are accepted and not used: files
need none, and a job can change its format without changing its options.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

EARLIEST, LATEST = -2, -1
"""The special offsets of Kafka's requests and of Spark's JSON."""

PARTITION_BYTES_MAX = 128 << 20
"""Spark's own default of spark.sql.files.maxPartitionBytes."""

OffsetsByPartition: TypeAlias = Mapping[str, Mapping[int, int]]
T = TypeVar("T")


class BadOption(ValueError):
    """An unknown option, or a bad value of one. The message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of a read: offsets, or times in milliseconds, for all partitions or for each."""

    everywhere: int | None = None
    by_partition: OffsetsByPartition | None = None
    is_time: bool = False

    def of(self, topic: str, partition: int) -> int:
        """Returns the offset or time for a partition.

        Raises:
            BadOption: it has none.
        """
        if self.everywhere is not None:
            return self.everywhere
        found = (self.by_partition or {}).get(topic, {}).get(partition)
        if found is None:
            raise BadOption(
                f"partition {partition} of {topic} is missing among the given offsets: use -2 for"
                " the earliest, -1 for the latest"
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics and partitions to read; by default all topics of a folder except internal ones."""

    topics: frozenset[str] | None = None
    pattern: str | None = None
    partitions: Mapping[str, frozenset[int]] | None = None

    def has(self, topic: str, partition: int, *, is_alone: bool) -> bool:
        """Returns whether a partition is read. `is_alone`: the path is its topic's or its own folder."""
        if self.partitions is not None:
            return partition in self.partitions.get(topic, ())
        if self.topics is not None:
            return topic in self.topics
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return is_alone or not topic.startswith("__")

    def missing(self, topics: set[str]) -> list[str]:
        """Returns the named topics that do not exist."""
        return sorted((self.topics or set(self.partitions or ())) - topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """All options of one read."""

    path: str
    """Absolute path of a data directory, a topic's folder or a partition's."""
    subscription: Subscription = Subscription()
    start: Bound = Bound(everywhere=EARLIEST)
    end: Bound = Bound(everywhere=LATEST)
    must_have_start: bool = True
    """Whether a starting time later than all records is an error; otherwise that partition is empty."""
    read_committed: bool = False
    include_headers: bool = False
    fail_on_data_loss: bool = True
    """Whether requested offsets that are gone are an error."""
    partition_bytes_max: int = PARTITION_BYTES_MAX
    """Approximate number of bytes that a task reads."""


KNOWN = (
    "path", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "kafka.isolation.level",
    "includeHeaders", "failOnDataLoss", "maxPartitionBytes",
)  # fmt: skip

OF_CONNECTION = ("kafka.bootstrap.servers", "kafka.security.", "kafka.sasl.", "kafka.ssl.")
"""Options of the Kafka source, or their beginnings, that have no effect on which records are read."""


def parse_options(given: Mapping[str, str]) -> SegmentOptions:
    """Parse the options of one read.

    Raises:
        BadOption: an option is unknown, has a bad value, or contradicts another.
    """
    known = {name.lower() for name in KNOWN}
    options = {name.lower(): value for name, value in given.items()}
    for name in given:
        if name.lower() not in known and not name.lower().startswith(OF_CONNECTION):
            raise BadOption(f"there is no option {name!r}; there are {', '.join(KNOWN)}")
    if "path" not in options:
        raise BadOption("say where the segment files are: .load('/a/data/directory')")
    return SegmentOptions(
        path=str(Path(options["path"].removeprefix("file://").removeprefix("file:")).absolute()),
        subscription=_subscription(options),
        start=_bound(options, "starting", EARLIEST),
        end=_bound(options, "ending", LATEST),
        must_have_start=_choice(
            options, "startingOffsetsByTimestampStrategy", {"error": True, "latest": False}, "error"
        ),
        read_committed=_choice(
            options,
            "kafka.isolation.level",
            {"read_committed": True, "read_uncommitted": False},
            "read_uncommitted",
        ),
        include_headers=_choice(options, "includeHeaders", BOOLEANS, "false"),
        fail_on_data_loss=_choice(options, "failOnDataLoss", BOOLEANS, "true"),
        partition_bytes_max=_number(options, "maxPartitionBytes", PARTITION_BYTES_MAX, least=1),
    )


BOOLEANS = {"true": True, "false": False}


def _choice(options: Mapping[str, str], name: str, choices: Mapping[str, T], default: str) -> T:
    value = options.get(name.lower(), default).lower()
    if value not in choices:
        raise BadOption(f"{name} is {' or '.join(choices)}, not {value!r}")
    return choices[value]


def _number(options: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = options.get(name.lower(), str(default))
    try:
        number = int(text)
    except ValueError:
        raise BadOption(f"{name} is a number, not {text!r}") from None
    if number < least:
        raise BadOption(f"{name} is at least {least}, not {number}")
    return number


def _subscription(options: Mapping[str, str]) -> Subscription:
    names = [
        name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options
    ]
    if len(names) > 1:
        raise BadOption(f"{' and '.join(names)} exclude each other")
    if "subscribe" in options:
        topics = frozenset(filter(None, map(str.strip, options["subscribe"].split(","))))
        return Subscription(topics=topics)
    if "subscribepattern" in options:
        pattern = options["subscribepattern"]
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadOption(f"subscribePattern {pattern!r} is no pattern: {error}") from None
        return Subscription(pattern=pattern)
    if "assign" in options:
        assigned = _json(options, "assign", lambda each: frozenset(map(int, each)))
        return Subscription(partitions=assigned)
    return Subscription()


def _bound(options: Mapping[str, str], side: str, default: int) -> Bound:
    """Parse one end of the read. As in Spark, a time for all wins over times for each, over offsets."""
    if f"{side}timestamp" in options:
        time = _number(options, f"{side}Timestamp", 0, least=0)
        return Bound(everywhere=time, is_time=True)
    if f"{side}offsetsbytimestamp" in options:
        times = _json(options, f"{side}OffsetsByTimestamp", _numbers)
        return Bound(by_partition=times, is_time=True)
    words = {"earliest": EARLIEST} if side == "starting" else {"latest": LATEST}
    text = options.get(f"{side}offsets", "").strip()
    if not text or text.lower() in words:
        return Bound(everywhere=words.get(text.lower(), default))
    if not text.startswith("{"):
        raise BadOption(f"{side}Offsets is {next(iter(words))!r} or JSON, not {text!r}")
    offsets = _json(options, f"{side}Offsets", _numbers)
    wrong = LATEST if side == "starting" else EARLIEST
    if any(offset == wrong for each in offsets.values() for offset in each.values()):
        raise BadOption(f"{side}Offsets of a batch cannot be {wrong}")
    return Bound(by_partition=offsets)


def _numbers(each: Mapping[str, int]) -> Mapping[int, int]:
    return {int(partition): int(number) for partition, number in each.items()}


def _json(options: Mapping[str, str], name: str, of_topic: Callable[..., T]) -> Mapping[str, T]:
    text = options[name.lower()]
    try:
        return {str(topic): of_topic(each) for topic, each in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        raise BadOption(f"{name} is no JSON by topic: {text!r}") from None
