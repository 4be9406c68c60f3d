"""What must be at the broker that has taken over, given what was on the other one's disks: pure.

A promotion's report says up to where each partition was copied. Of a partition that it does not list,
everything was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.harness.failover_clients import Copier, Place, Produced
from tests.harness.on_disk_reader import Log

KeyValue = tuple[bytes | None, bytes | None]
Content = Mapping[int, KeyValue]
"""Key and value by offset."""
PLACE = re.compile(r"(\S+)-(\d+): ")
OWN_END = re.compile(r"this log ends at (\d+)")
THEIR_END = re.compile(r"the source's(?: log ends)? at (\d+)")


@dataclass(frozen=True, slots=True)
class Source:
    """What one partition was on the disks of the broker from which the other one has taken over."""

    start: int
    end: int
    content: Content


def source_of(log: Log) -> Source:
    """Returns what is in a log on a disk."""
    content = {offset: (key, value) for offset, _, key, value, _ in log.records()}
    return Source(log.manifest.log_start_offset, log.end_offset, content)


def copied_ends(missing: Iterable[str]) -> dict[Place, int]:
    """Returns up to where each partition was copied that a report lists."""
    ends = {}
    for sentence in missing:
        place, end = PLACE.match(sentence), OWN_END.search(sentence)
        if place is not None:
            ends[place[1], int(place[2])] = 0 if end is None else int(end[1])
    return ends


def source_ends(missing: Iterable[str]) -> dict[Place, int]:
    """Returns where the source's logs end that a report lists with that."""
    found = ((PLACE.match(each), THEIR_END.search(each)) for each in missing)
    return {(place[1], int(place[2])): int(end[1]) for place, end in found if place and end}


def faults_of_copy(
    place: Place, source: Source, found: Content, copied: int, *, start: int, is_compacted: bool
) -> list[str]:
    """Returns what is wrong with the records that were copied.

    Args:
        found: all records at the broker that has taken over.
        copied: up to where they were copied.
        start: records before may be deleted.
    """
    expected = {at: each for at, each in source.content.items() if start <= at < copied}
    got = {at: each for at, each in found.items() if start <= at < copied}
    if is_compacted:
        # Either may have cleaned more. What is there must be the same, and the last values equal.
        wrong = [at for at in expected.keys() & got.keys() if expected[at] != got[at]]
        return [f"{place}: offset {at} has another record" for at in wrong]
    missing = sorted(expected.keys() - got.keys())
    others = sorted(at for at in got if got[at] != expected.get(at))
    return [
        *(f"{place}: offset {at} is lost, copied up to {copied}" for at in missing),
        *(f"{place}: offset {at} is not the source's record" for at in others),
    ]


def faults_of_acknowledged(
    topic: str,
    produced: Produced,
    source: Mapping[int, Source],
    found: Mapping[int, Content],
    copied: Mapping[int, int],
) -> list[str]:
    """Returns what is wrong with what a producer had acknowledged, before or after the promotion."""
    faults = []
    for (partition, offset), record in produced.acknowledged.items():
        is_sources = source[partition].content.get(offset) == record
        if found[partition].get(offset) != record and not (
            is_sources and offset >= copied[partition]
        ):
            faults.append(
                f"{topic}-{partition}: {record} was acknowledged at {offset}, and is lost"
            )
    values = Counter(each for content in found.values() for each in content.values())
    faults += [f"{topic}: {each} is there {n} times" for each, n in values.items() if n > 1]
    return faults


def faults_of_table(
    topic: str,
    produced: Produced,
    source: Mapping[int, Source],
    found: Mapping[int, Content],
    copied: Mapping[int, int],
) -> list[str]:
    """Returns which keys of a compacted topic have another value than the last one that was written."""
    faults = []
    for partition, content in found.items():
        written = {
            at: each for at, each in source[partition].content.items() if at < copied[partition]
        }
        written |= {
            at: record
            for (number, at), record in produced.acknowledged.items()
            if number == partition
            # Else it was lost, unless it was sent once more, and is there.
            and (source[partition].content.get(at) != record or content.get(at) == record)
        }
        expected, last = last_values(written), last_values(content)
        faults += [
            f"{topic}-{partition}: {key!r} is {last.get(key)!r}, written was {expected.get(key)!r}"
            for key in expected.keys() | last.keys()
            if expected.get(key) != last.get(key)
        ]
    return faults


def last_values(content: Content) -> dict[bytes | None, bytes]:
    """Returns the last value of each key that was not deleted."""
    found = {key: value for _, (key, value) in sorted(content.items())}
    return {key: value for key, value in found.items() if value is not None}


def faults_of_copier(
    copier: Copier,
    given: Mapping[int, Content],
    copies: Sequence[bytes],
    committed: Mapping[int, int],
) -> list[str]:
    """Returns which records were not copied exactly once.

    Args:
        given: the records of its source.
        copies: the values in its target, as readers of committed records see them.
        committed: its group's offsets.
    """
    handled = Counter[tuple[int, int]]()
    faults = []
    for value in copies:
        name, partition, offset = value.decode().split()
        handled[int(partition), int(offset)] += 1
        if name in copier.aborted:
            faults.append(f"{value!r} is of an aborted transaction")
    wanted = {
        (partition, offset)
        for partition, content in given.items()
        for offset in content
        if offset < committed.get(partition, 0)
    }
    faults += [f"{place} was copied {n} times" for place, n in handled.items() if n > 1]
    faults += [
        f"{place} was not copied, and is committed" for place in sorted(wanted - set(handled))
    ]
    faults += [
        f"{place} was copied, and is not committed" for place in sorted(set(handled) - wanted)
    ]
    return faults
