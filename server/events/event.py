"""What a record of `__compaction_events` says: how a pass over a log began, and how it ended.

    key     the log, as `topic-partition`
    value   JSON, an object that docs/reference/compaction-event.schema.json describes; null once the
            log is gone

The schema is generated from these classes. A later release may add members and events: readers ignore
those that they do not know. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cleaner.rules.report import PassReport
from storage.formats.topic_partition import TopicPartition

FORMAT = 1
DIGITS_MAX = 10
"""Of the number of a partition, which is an int32."""

Count = Annotated[int, Meta(ge=0)]
Bytes = Annotated[int, Meta(ge=0, description="Bytes.")]
Seconds = Annotated[float, Meta(ge=0, description="Seconds.")]
Why = Annotated[str, Meta(description="The reason, a sentence for people.")]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """An event of a pass over one log."""

    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)] = FORMAT
    topic: str
    partition: Count
    broker: Annotated[int, Meta(description="The id of the broker whose cleaner ran the pass.")]
    time_ms: Annotated[int, Meta(description="When it happened, in milliseconds since 1970, UTC.")]


class Started(Event, frozen=True, kw_only=True, tag="started"):
    """A pass has begun."""


class Stalled(Event, frozen=True, kw_only=True, tag="stalled"):
    """A running pass has made no progress for a while. Its end follows if it continues."""

    stalled_seconds: Seconds
    phase: Annotated[str, Meta(description="The step in which it stands, such as recopy.")]


class Ended(Event, frozen=True, kw_only=True):
    """A pass has ended."""

    seconds: Annotated[
        float, Meta(ge=0, description="How long it ran, in seconds; 0 if this is not known.")
    ]


class Completed(Ended, frozen=True, kw_only=True, tag="completed"):
    """A pass has done all that it had planned."""

    reason: Annotated[str, Meta(description="Why the log was picked: DIRTY, REQUESTED and others.")]
    start_offset: Annotated[Count, Meta(description="Where the dirty section began.")]
    end_offset: Annotated[Count, Meta(description="The new clean offset.")]
    bytes_before: Annotated[Bytes, Meta(description="Bytes of the segments that were rewritten.")]
    bytes_after: Annotated[Bytes, Meta(description="Bytes of the segments that replace them.")]
    bytes_untouched: Annotated[Bytes, Meta(description="Bytes of the segments that stayed.")]
    bytes_read: Bytes
    bytes_written: Bytes
    records_before: Annotated[
        Count, Meta(description="Records of the segments that were rewritten.")
    ]
    records_after: Annotated[Count, Meta(description="Records that are left of them.")]
    records_by_verdict: Annotated[
        Mapping[str, Count], Meta(description="How many records were kept or dropped, and why.")
    ]
    keys_mapped: Annotated[Count, Meta(description="Distinct keys of the dirty section.")]
    segments_before: Annotated[Count, Meta(description="Segments that were rewritten.")]
    segments_after: Annotated[Count, Meta(description="Segments that replace them.")]
    segments_untouched: Count
    segments_damaged: Annotated[
        Count, Meta(description="Damaged segments that stayed, and that the pass cleaned around.")
    ]
    is_verified: Annotated[
        bool, Meta(description="Whether the output was compared with the source before each swap.")
    ]


class Aborted(Ended, frozen=True, kw_only=True, tag="aborted"):
    """A pass was stopped early, without an error."""

    why: Why


class Cancelled(Ended, frozen=True, kw_only=True, tag="cancelled"):
    """An operator has stopped a pass."""

    why: Why


class Failed(Ended, frozen=True, kw_only=True, tag="failed"):
    """A pass has failed, and its log is in quarantine."""

    why: Why
    kind: Annotated[str, Meta(description="The class of the error, such as corrupt_batch.")]
    failures: Annotated[int, Meta(ge=1, description="Passes over the log that failed in a row.")]
    rest_seconds: Annotated[float, Meta(ge=0, description="How long the log rests.")]


AnyEvent = Started | Stalled | Completed | Aborted | Cancelled | Failed

_OF_REPORT = tuple(
    name for name in Completed.__struct_fields__ if name in PassReport.__dataclass_fields__
)


def completed(report: PassReport, *, seconds: float, broker: int, time_ms: int) -> Completed:
    """Returns the event of a completed pass."""
    members = {name: getattr(report, name) for name in _OF_REPORT} | {"seconds": seconds}
    damaged = len(report.fences)
    return Completed(broker=broker, time_ms=time_ms, segments_damaged=damaged, **members)


def key_of(log: TopicPartition) -> bytes:
    """Returns the key of a log's records."""
    return str(log).encode()


def log_of(key: bytes) -> TopicPartition | None:
    """Returns the log of a key; None if the key is not one of ours."""
    topic, dash, number = key.decode("utf-8", "replace").rpartition("-")
    is_ours = dash and number.isdecimal() and len(number) <= DIGITS_MAX
    return TopicPartition(topic, int(number)) if is_ours else None


def is_running(value: bytes) -> bool:
    """Returns whether a pass runs after this event, as far as it says. False for other values."""
    try:
        event = msgspec.json.decode(value, type=_Tag).event
    except (msgspec.MsgspecError, ValueError):  # ValueError: text that is not UTF-8.
        return False
    return event in ("started", "stalled")


class _Tag(msgspec.Struct):
    event: str = ""


def schema() -> dict[str, Any]:
    """Returns the JSON Schema (2020-12) of a value."""
    found = msgspec.json.schema(AnyEvent)
    for each in found["$defs"].values():
        # Each event has all of its members, also those with a default.
        each["required"] = list(each["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The value of a record in __compaction_events",
        **found,
    }
