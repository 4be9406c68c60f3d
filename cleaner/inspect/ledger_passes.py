"""The passes in a ledger: put together from their entries, found by offset, and what they say of a key.

The ledger stores no keys. So it cannot name the pass that dropped a record whose offset nobody knows any
more; it can say between which passes that happened. All functions are pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cleaner.rules.record_verdict import Verdict
from cleaner.rules.text import count_text, moment_text
from storage.formats.ledger_entry import GROUP, PASS, SETTLED, UNDONE, Entry

PASSES_MAX = 1_000
"""So many passes are kept, the newest."""

DROPPED = tuple(verdict.value for verdict in Verdict if not verdict.is_kept)


@dataclass(slots=True, kw_only=True)
class LedgerGroup:
    """A group of segments that a pass replaced, or was about to."""

    number: int
    """Of its entry."""
    members: dict[str, Any]
    """The whole entry (`storage/formats/ledger_entry.py`)."""
    outcome: str = "unknown"
    """`swapped`, `not_swapped`, `undone` by an operator, or `unknown` while the pass runs, or if nothing
    could tell."""

    @property
    def start_offset(self) -> int:
        """The first offset that it covers."""
        return int(self.members["sources"][0]["base_offset"])

    @property
    def end_offset(self) -> int:
        """The offset after the last one that it covers."""
        return int(self.members["sources"][-1]["end_offset"])

    @property
    def dropped(self) -> int:
        """The records that it dropped."""
        verdicts = self.members["verdicts"]
        return sum(verdicts.get(name, 0) for name in DROPPED)


@dataclass(slots=True, kw_only=True)
class LedgerPass:
    """A pass that changed a log."""

    pass_id: str
    topic: str
    topic_id: str
    partition: int
    at_ms: int
    """Wall time of its first certificate."""
    groups: list[LedgerGroup] = field(default_factory=list)
    ended_ms: int | None = None
    """Wall time of its end; None: it has none yet."""
    result: str = "running"
    """`completed`, `stopped`, `failed`, `settled` after a crash, or `running`."""
    end: dict[str, Any] | None = None
    """The entry of its end."""

    @property
    def swapped(self) -> list[LedgerGroup]:
        """Its groups that may have replaced their sources, and were not undone."""
        return [each for each in self.groups if each.outcome not in ("not_swapped", UNDONE)]

    def has_reached(self, offset: int) -> bool:
        """Returns whether it was the one that compared this offset's key with all records below it."""
        if self.end is None or self.result != "completed":
            return False
        if any(group.outcome == UNDONE for group in self.groups):
            return False
        return bool(self.end["start_offset"] <= offset < self.end["end_offset"])


def wanted_bytes(topic: str | None, topic_id: str | None) -> bytes:
    """Returns bytes that each entry about a topic contains; empty if all topics are meant."""
    if topic_id is not None:
        return topic_id.encode()
    return (
        b"" if topic is None else json.dumps({"topic": topic}, separators=(",", ":"))[1:-1].encode()
    )


def passes_of(
    entries: Iterable[Entry],
    *,
    topic: str | None = None,
    topic_id: str | None = None,
    partition: int | None = None,
    limit: int = PASSES_MAX,
) -> list[LedgerPass]:
    """Returns the last passes in entries that come in their order, oldest first."""
    found: dict[str, LedgerPass] = {}
    for entry in entries:
        members = entry.members
        is_wanted = (
            entry.kind in (GROUP, PASS, SETTLED, UNDONE)
            and topic in (None, members["topic"])
            and topic_id in (None, members["topic_id"])
            and partition in (None, members["partition"])
        )
        if is_wanted and entry.kind == GROUP:
            _take_group(found, entry)
            if len(found) > limit:
                del found[next(iter(found))]
        elif is_wanted and entry.kind == UNDONE:
            _take_undo(found.values(), entry)
        elif is_wanted and members["pass"] in found:
            _take_end(found[members["pass"]], entry)
    return list(found.values())


def _take_group(found: dict[str, LedgerPass], entry: Entry) -> None:
    members = entry.members
    each = found.get(members["pass"])
    if each is None:
        each = found[members["pass"]] = LedgerPass(
            pass_id=members["pass"],
            topic=members["topic"],
            topic_id=members["topic_id"],
            partition=members["partition"],
            at_ms=entry.at_ms,
        )
    each.groups.append(LedgerGroup(number=entry.number, members=members))


def _take_end(each: LedgerPass, entry: Entry) -> None:
    each.ended_ms, each.end = entry.at_ms, entry.members
    each.result = entry.members.get("result", SETTLED)
    for outcome in ("swapped", "not_swapped"):
        numbers = set(entry.members[outcome])
        for group in each.groups:
            # A pass that an undo has interrupted has its end after that.
            if group.number in numbers and group.outcome != UNDONE:
                group.outcome = outcome


def _take_undo(passes: Iterable[LedgerPass], entry: Entry) -> None:
    """Mark the groups that an undo has taken back."""
    members = entry.members
    sources, outputs = _names(members["sources"]), _names(members["outputs"])
    for each in passes:
        if (each.topic_id, each.partition) != (members["topic_id"], members["partition"]):
            continue
        for group in each.groups:
            written = _names(group.members["outputs"])
            # A group of which nothing is left has written nothing.
            is_undone = (
                written <= outputs if written else _names(group.members["sources"]) <= sources
            )
            if is_undone and group.outcome != "not_swapped":
                group.outcome = UNDONE


def _names(segments: Iterable[Mapping[str, int]]) -> set[tuple[int, int]]:
    return {(each["base_offset"], each["version"]) for each in segments}


def covering(passes: Iterable[LedgerPass], offset: int) -> list[tuple[LedgerPass, LedgerGroup]]:
    """Returns the passes, each with its group, that rewrote the segment of an offset, oldest first."""
    return [
        (each, group)
        for each in passes
        for group in each.swapped
        if group.start_offset <= offset < group.end_offset
    ]


def departures(
    passes: Sequence[LedgerPass], last_offset: int | None, *, keeps_last_only: bool
) -> Iterator[str]:
    """Yields sentences about when older records of a key went, as far as the ledger can tell.

    Where a topic keeps the last value by offset, the pass that reaches the key's current record compares
    it with all records below it: what was left of the older ones goes with that pass.

    Args:
        passes: over the log, oldest first.
        last_offset: of the key's current record; None: it has no record left.
        keeps_last_only: False where older values may stay, or a record with a lower offset may win.
    """
    dropping = [each for each in passes if any(group.dropped for group in each.swapped)]
    if not dropping:
        return
    if last_offset is None:
        yield (
            f"if cleaning removed records of it, that was with {_span(dropping)}, or before the ledger"
            " began: it stores no keys, so it cannot say more"
        )
        return
    before = [each for each in dropping if _has_dropped_below(each, last_offset)]
    first = next((each for each in passes if each.has_reached(last_offset)), None)
    if first is None or not keeps_last_only:
        if before:
            yield (
                f"older records of it that cleaning removed went with {_span(before)}, or before the"
                " ledger began"
            )
        return
    earlier = before[: _index(before, first)]
    sentence = (
        f"older records of it were gone at the latest with pass {first.pass_id}, {_when(first)}, the"
        f" first one that reached offset {last_offset}"
    )
    yield sentence + (f"; some may have gone before, with {_span(earlier)}" if earlier else "")


def _has_dropped_below(each: LedgerPass, offset: int) -> bool:
    return any(group.dropped and group.start_offset < offset for group in each.swapped)


def _index(passes: Sequence[LedgerPass], until: LedgerPass) -> int:
    earlier = [number for number, each in enumerate(passes) if each.at_ms >= until.at_ms]
    return earlier[0] if earlier else len(passes)


def _span(passes: Sequence[LedgerPass]) -> str:
    """Returns passes as text: one by its name, several by their number and time."""
    if len(passes) == 1:
        return f"pass {passes[0].pass_id}, {_when(passes[0])}"
    first, last = passes[0], passes[-1]
    return (
        f"one of {count_text(len(passes), 'pass', 'passes')} from {first.pass_id}, {_when(first)}, to"
        f" {last.pass_id}, {_when(last)}"
    )


def _when(each: LedgerPass) -> str:
    return moment_text(each.ended_ms if each.ended_ms is not None else each.at_ms)
