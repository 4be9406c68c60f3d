"""The offsets up to which a table holds its topics: a cut through their logs.

Its form beside a table, and in the output for people and programs:

    {"kompakt": 1, "topics": {"<topic>": {"id": "<topic id>", "offsets": {"<partition>": <next>}}}}

A record below the next offset of its partition is in the table, or was superseded or deleted there;
a record at or above it has had no effect. All of this is pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> an offset."""
FORMAT = 1


class TableRefused(Exception):
    """A table cannot be written or followed as requested. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The offsets that a table holds: the next offset of each partition, and the ids of the topics."""

    offsets: Offsets
    topic_ids: Mapping[str, str]

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        """Parse a cut. Returns None if the text is not one of ours.

        Raises:
            TableRefused: a newer version wrote it.
        """
        try:
            content = json.loads(text or "")
            version, topics = content["kompakt"], content["topics"]
        except (ValueError, KeyError, TypeError):
            return None
        if version != FORMAT:
            raise TableRefused(f"the table's offsets have the format {version}, we know {FORMAT}")
        offsets = {name: with_numbers(topic["offsets"]) for name, topic in topics.items()}
        return cls(offsets, {name: topic["id"] for name, topic in topics.items()})

    def to_json(self) -> str:
        topics = {
            name: {"id": self.topic_ids.get(name, ""), "offsets": dict(sorted(parts.items()))}
            for name, parts in sorted(self.offsets.items())
        }
        return json.dumps({"kompakt": FORMAT, "topics": topics})

    def advanced(self, offsets: Offsets) -> Self:
        """Returns the cut with the higher of both offsets for each partition: a cut never goes back."""
        topics = self.offsets.keys() | offsets.keys()
        joined = {
            name: higher(self.offsets.get(name, {}), offsets.get(name, {})) for name in topics
        }
        return type(self)(joined, self.topic_ids)

    def rows(self) -> list[tuple[str, int, int]]:
        """Returns topic, partition and next offset, in order."""
        return [
            (topic, partition, offset)
            for topic, parts in sorted(self.offsets.items())
            for partition, offset in sorted(parts.items())
        ]


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """The broker's answer about the topics at one moment: their ids, first and end offsets."""

    topic_ids: Mapping[str, str]
    first: Offsets
    end: Offsets

    def cut(self) -> Cut:
        """Returns the cut at the end offsets."""
        return Cut(self.end, self.topic_ids)

    def behind(self, cut: Cut) -> int:
        """Returns the offsets from a cut to the ends of all partitions."""
        return sum(
            max(0, end - cut.offsets.get(topic, {}).get(partition, self.first[topic][partition]))
            for topic, ends in self.end.items()
            for partition, end in ends.items()
        )


def start_of_stream(held: Cut, now: TopicOffsets, *, fail_on_data_loss: bool) -> Cut:
    """Returns where a stream continues: exactly at the cut, or at a new partition's first offset.

    Raises:
        TableRefused: the table holds other topics, one of them was recreated, or records between
            the cut and the topic's first offset are gone (accepted without `fail_on_data_loss`).
    """
    refuse_other_topics(held, now.first.keys())
    for topic, partition, offset in held.rows():
        refuse_recreated(topic, held, now)
        first = now.first[topic].get(partition)
        end = now.end[topic].get(partition)
        if first is None or end is None or offset > end:
            raise TableRefused(
                f"{topic}-{partition} ends at {end or 0}, but the table holds it up to {offset}: "
                f"this is not the same topic; {REWRITE_HINT}"
            )
        if offset < first and fail_on_data_loss:
            raise TableRefused(
                f"{topic}-{partition} begins at {first}, but the table holds it up to {offset}: "
                f"the records in between are gone; {REWRITE_HINT}, or continue with "
                "--option failOnDataLoss=false"
            )
    offsets = {
        topic: higher(held.offsets.get(topic, {}), parts) for topic, parts in now.first.items()
    }
    return Cut(offsets, now.topic_ids)


REWRITE_HINT = "rewrite the table with `kompakt pipeline table batch`"


def refuse_taken_back(held: Cut | None, reached: Cut | None) -> None:
    """Raises TableRefused if a table holds less than a stream has already written to it.

    The stream would continue after the gap, and the table would claim to hold the missing records.
    """
    for topic, partition, offset in reached.rows() if reached is not None else ():
        now = held.offsets.get(topic, {}).get(partition, 0) if held is not None else 0
        if now < offset:
            raise TableRefused(
                f"the table was set back: it held {topic}-{partition} up to {offset} and now "
                f"holds it up to {now}; start the stream again to continue from there"
            )


def refuse_other_topics(held: Cut, topics: Iterable[str]) -> None:
    """Raises TableRefused if the table holds a topic that is not among `topics`."""
    others = sorted(held.offsets.keys() - set(topics))
    if others:
        raise TableRefused(f"the table holds other topics: {', '.join(others)}")


def refuse_recreated(topic: str, held: Cut, now: TopicOffsets) -> None:
    """Raises TableRefused if both ids are known and differ."""
    before, after = held.topic_ids.get(topic), now.topic_ids.get(topic)
    if before and after and before != after:
        raise TableRefused(
            f"{topic} was deleted and created again (its id was {before} and is {after}); {REWRITE_HINT}"
        )


def higher(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {
        partition: max(one.get(partition, 0), other.get(partition, 0))
        for partition in one.keys() | other.keys()
    }


def with_numbers(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}
