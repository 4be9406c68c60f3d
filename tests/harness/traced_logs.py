"""What stopped brokers have in their files of traced records, and what their compaction may have left.

A log may lack a committed record only if a later one of its key was committed, or if it is a tombstone
and nothing older of its key is left. Everything else is as it was written, where it was acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.record_batch import Codec, read_records
from tests.harness.log_builder import PLENTY
from tests.harness.traced_records import Columns, Flags, Ledger, TracedTopic, newest

DELETE_HORIZON = 0x40
Place = tuple[int, int]
"""The number of a topic, and a partition."""
DirectoryOf = Callable[[str, int], Path]


@dataclass(slots=True)
class FoundRecords:
    """The records of one side, by number, and its batches."""

    are_there: Flags
    batches: dict[Place, dict[int, BatchHeader]] = field(default_factory=dict)
    codecs: Counter[Codec] = field(default_factory=Counter)
    """The codecs of batches with records."""
    markers: int = 0

    def of_topic(self, columns: Columns, topic: int) -> Flags:
        """Returns which records of a topic are there."""
        return self.are_there & columns.of_topic(topic)


def kompakt_directory(data: Path) -> DirectoryOf:
    """Returns where a broker of ours has a partition."""

    def directory(topic: str, partition: int) -> Path:
        (found,) = data.glob(f"{topic}.*/{partition}")
        return found

    return directory


def kafka_directory(data: Path) -> DirectoryOf:
    """Returns where an Apache Kafka has a partition."""
    return lambda topic, partition: data / f"{topic}-{partition}"


def found_in(
    directory_of: DirectoryOf, topics: Sequence[TracedTopic], ledger: Ledger
) -> FoundRecords:
    """Read all logs of a stopped broker. Each record must be as it was written, and there once."""
    found = FoundRecords(np.zeros(ledger.count, np.bool_))
    for number, topic in enumerate(topics):
        for partition in range(topic.partitions):
            _read_log(directory_of(topic.name, partition), (number, partition), ledger, found)
    return found


def _read_log(directory: Path, place: Place, ledger: Ledger, found: FoundRecords) -> None:
    headers = found.batches[place] = {}
    end, epoch = 0, -1
    for data, position, header in _batches(directory):
        assert header.base_offset >= end, f"{directory}: {header} after offset {end}"
        assert header.leader_epoch >= epoch, f"{directory}: {header} after epoch {epoch}"
        end, epoch = header.next_offset, header.leader_epoch
        headers[header.base_offset] = header
        if header.is_control:
            found.markers += 1
            continue
        records = read_records(data, position, decompressed_bytes_max=PLENTY)
        found.codecs.update([header.codec] if records else ())
        for record in records:
            number = ledger.check(record, *place)
            assert not found.are_there[number], f"{directory}: {number} is there twice"
            found.are_there[number] = True


def _batches(directory: Path) -> Iterator[tuple[bytes, int, BatchHeader]]:
    for path in sorted(directory.glob("*.log")):
        data, position = path.read_bytes(), 0
        while position < len(data):
            header = read_header(data, position)
            yield data, position, header
            position += header.size_bytes


# -------------------------------------------------------------------- what one side may lack


def check_kept(columns: Columns, topic: int, there: Flags, *, is_compacted: bool) -> None:
    """Check that a side lacks nothing of a topic but what its policy lets it remove."""
    of_topic = columns.of_topic(topic)
    committed = of_topic & columns.are_committed
    if not is_compacted:
        _check_none(committed & ~there, "committed records are missing")
        return
    last = newest(columns, of_topic)
    _check_none(last & ~columns.are_tombstones & ~there, "last values are missing")
    keys = columns.partitions * (int(columns.keys.max(initial=0)) + 1) + columns.keys
    deleted = np.unique(keys[last & columns.are_tombstones & ~there])
    _check_none(committed & there & np.isin(keys, deleted), "deleted keys have their values again")


def check_cleaned(columns: Columns, topic: int, there: Flags) -> None:
    """Check that a side whose cleaner has finished has nothing else than the last record of each key,
    except the last records of the partitions: with them a reader reaches the end."""
    of_topic = columns.of_topic(topic)
    surplus = there & of_topic & ~newest(columns, of_topic)
    counts = np.bincount(columns.partitions[surplus])
    assert counts.max(initial=0) <= 1, f"records that no reader needs, by partition: {counts}"


def _check_none(wrong: Flags, what: str) -> None:
    (numbers,) = np.nonzero(wrong)
    assert not len(numbers), f"{len(numbers)} {what}: {numbers[:9]}"


# -------------------------------------------------------------------- what both sides have in common


def check_batches(source: FoundRecords, mirror: FoundRecords) -> None:
    """Check that batches of both sides are the same, as far as passes have left them whole."""
    for place, theirs in source.batches.items():
        for base, mine in mirror.batches[place].items():
            if base in theirs:
                _check_same(theirs[base], mine)


def _check_same(source: BatchHeader, mirror: BatchHeader) -> None:
    both = f"{source} is {mirror} in the mirror"
    assert _lasting(source) == _lasting(mirror), both
    if source.record_count and mirror.record_count:
        assert source.codec == mirror.codec, both
    if _is_whole(source) and _is_whole(mirror):
        assert source == mirror, f"whole batches are the same bytes: {both}"


def _lasting(header: BatchHeader) -> tuple[object, ...]:
    """Returns what no pass changes."""
    return (
        header.last_offset,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        header.is_control,
    )


def _is_whole(header: BatchHeader) -> bool:
    has_all = header.record_count == header.last_offset - header.base_offset + 1
    return has_all and not header.attributes & DELETE_HORIZON
