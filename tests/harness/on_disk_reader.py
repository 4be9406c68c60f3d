"""A reader of data directories, written only from docs/reference/on-disk.md.

It shares no code with the broker. If it can read a broker's files, the text describes them correctly.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cramjam
import crc32c
import xxhash

SEGMENT = re.compile(r"(\d{20})\.v(\d+)\.log")


class NotAsDescribed(AssertionError):
    """A file does not match the description."""


def check(holds: bool, text: str) -> None:
    if not holds:
        raise NotAsDescribed(text)


# ---------------------------------------------------------------- record batches

BATCH = struct.Struct(">qiibIhiqqqhii")
INFLATE: dict[int, Callable[[bytes], bytes]] = {
    1: gzip.decompress,
    3: lambda data: bytes(cramjam.lz4.decompress(data)),
    4: lambda data: bytes(cramjam.zstd.decompress(data)),
}


DecodedRecord = tuple[int, int, bytes | None, bytes | None, list[Any]]


@dataclass(frozen=True)
class Batch:
    position: int
    size: int
    base_offset: int
    last_offset: int
    epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    packed: bytes = field(repr=False)

    @property
    def delete_horizon(self) -> int | None:
        return self.base_timestamp if self.attributes & 64 else None

    def records(self) -> Iterator[DecodedRecord]:
        """Yields offset, timestamp, key, value and headers of each record."""
        return (record for record, _ in self.sized_records())

    def sized_records(self) -> Iterator[tuple[DecodedRecord, int]]:
        """Yields each record with its uncompressed size in bytes, including the length field."""
        codec = self.attributes & 7
        data = INFLATE[codec](self.packed) if codec and self.packed else self.packed
        at = 0
        for _ in range(self.record_count):
            start = at
            length, at = varint(data, at)
            end = at + length
            delta, at = varint(data, at + 1)
            offset_delta, at = varint(data, at)
            key, at = nullable(data, at)
            value, at = nullable(data, at)
            header_count, at = varint(data, at)
            headers = []
            for _ in range(header_count):
                name, at = nullable(data, at)
                content, at = nullable(data, at)
                headers.append((name, content))
            check(at == end, "a record is as long as it says")
            time = self.max_timestamp if self.attributes & 8 else self.base_timestamp + delta
            yield (self.base_offset + offset_delta, time, key, value, headers), end - start
        check(at == len(data), "records fill their batch")


def varint(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        raw |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


def nullable(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = varint(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def batches_of(data: bytes, end_offset: int, sound_bytes: int) -> list[Batch]:
    """Returns the batches up to the first unsound one, which must not begin below `sound_bytes`."""
    found: list[Batch] = []
    at, reach = 0, end_offset + (1 << 31)
    while (batch := batch_at(data, at, end_offset)) is not None and batch.last_offset < reach:
        found.append(batch)
        at, end_offset = at + batch.size, batch.last_offset + 1
    check(at >= sound_bytes, f"batches are sound below byte {sound_bytes}, not {at}")
    return found


def batch_at(data: bytes, at: int, end_offset: int) -> Batch | None:
    if at + BATCH.size > len(data):
        return None
    values = BATCH.unpack_from(data, at)
    base, length, epoch, magic, crc, attributes, last_delta = values[:7]
    size, count = length + 12, values[-1]
    if magic != 2 or size < BATCH.size or at + size > len(data) or base < end_offset:
        return None
    if crc32c.crc32c(data[at + 21 : at + size]) != crc or count > last_delta + 1:
        return None
    packed = data[at + BATCH.size : at + size]
    names = ("base_timestamp", "max_timestamp", "producer_id", "producer_epoch")
    rest = dict(zip((*names, "base_sequence", "record_count"), values[7:], strict=True))
    return Batch(
        position=at,
        size=size,
        base_offset=base,
        last_offset=base + last_delta,
        epoch=epoch,
        attributes=attributes,
        packed=packed,
        **rest,
    )


# ---------------------------------------------------------------- manifest

HEADER = struct.Struct(">4sHHHHqq16siiqqq")
ROW = struct.Struct(">qqiiqqqqqqqqqq")
TOMBSTONES = struct.Struct(">qq")
ROW_FIELDS = (
    "base_offset",
    "file_version",
    "flags",
    "control_count",
    "end_offset",
    "size",
    "max_timestamp",
    "offset_of_max_timestamp",
    "created",
    "first_append",
    "last_append",
    "record_count",
    "tombstone_count",
    "least_delete_horizon",
    "tombstone_bytes",
    "tombstones_due",
)


@dataclass(frozen=True)
class Manifest:
    version: int
    generation: int
    topic_id: str
    partition: int
    log_start_offset: int
    clean_offset: int
    truncate_to: int
    rows: list[dict[str, int]]


def read_manifest(directory: Path) -> Manifest:
    data = (directory / "manifest").read_bytes()
    check(xxhash.xxh3_64_intdigest(data[:-8]) == int.from_bytes(data[-8:]), "the checksum fits")
    magic, format_, header_size, row_size, flags, *values = HEADER.unpack_from(data)
    check((magic, format_) == (b"KMAN", 2 if flags & 4 else 1), "magic and format")
    version, generation, topic_id, partition, count, log_start, clean, truncate_to = values
    check(len(data) == header_size + count * row_size + 8, "the sizes fit")
    rows = [read_row(data[header_size + n * row_size :], row_size) for n in range(count)]
    id_text = base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    return Manifest(version, generation, id_text, partition, log_start, clean, truncate_to, rows)


def read_row(data: bytes, row_size: int) -> dict[str, int]:
    base_offset, file_version, flags, controls, *rest = ROW.unpack_from(data)
    values = (base_offset, file_version, flags, controls - 1, *rest)
    more = TOMBSTONES.unpack_from(data, ROW.size) if row_size >= 120 else (-1, -1)
    return dict(zip(ROW_FIELDS, values + more, strict=True))


# ---------------------------------------------------------------- a log


@dataclass(frozen=True)
class Segment:
    path: Path
    row: dict[str, int] | None
    """None: not in a manifest yet."""
    base_offset: int
    batches: list[Batch]

    @property
    def is_whole(self) -> bool:
        return sum(batch.size for batch in self.batches) == self.path.stat().st_size


@dataclass(frozen=True)
class Log:
    directory: Path
    manifest: Manifest
    segments: list[Segment]

    @property
    def end_offset(self) -> int:
        last = self.segments[-1]
        return last.batches[-1].last_offset + 1 if last.batches else last.base_offset

    def batches(self) -> list[Batch]:
        return [batch for segment in self.segments for batch in segment.batches]

    def records(self) -> list[DecodedRecord]:
        """Returns the records in the log, without those of control batches."""
        return [
            record
            for batch in self.batches()
            if not batch.attributes & 32
            for record in batch.records()
            if record[0] >= self.manifest.log_start_offset
        ]


def read_log(directory: Path) -> Log:
    manifest = read_manifest(directory)
    segments = [listed_segment(directory, row, is_last=False) for row in manifest.rows[:-1]]
    segments.append(listed_segment(directory, manifest.rows[-1], is_last=True))
    log = Log(directory, manifest, segments)
    while (following := continuing_segment(log)) is not None:
        segments.append(following)
    return log


def listed_segment(directory: Path, row: dict[str, int], *, is_last: bool) -> Segment:
    path = directory / f"{row['base_offset']:020d}.v{row['file_version']}.log"
    if not path.exists():
        path = path.with_name(path.name + ".cleaned")
    data = path.read_bytes()
    if not is_last:
        data = data[: row["size"]]
    batches = batches_of(data, row["base_offset"], max(row["size"], 0))
    return Segment(path, row, row["base_offset"], batches)


def continuing_segment(log: Log) -> Segment | None:
    tail = log.segments[-1]
    if log.manifest.truncate_to != -1 or not tail.batches or not tail.is_whole:
        return None
    versions: dict[int, Path] = {}
    for path in log.directory.iterdir():
        found = SEGMENT.fullmatch(path.name)
        if found and int(found[1]) == log.end_offset:
            versions[int(found[2])] = path
    for version in {segment.row["file_version"] for segment in log.segments if segment.row}:
        versions.pop(version, None)
    if not versions:
        return None
    path = versions[max(versions)]
    return Segment(path, None, log.end_offset, batches_of(path.read_bytes(), log.end_offset, 0))


# ---------------------------------------------------------------- indexes


def read_offset_index(segment: Segment) -> list[tuple[int, int]]:
    """Returns last offset and position of each entry."""
    data = segment.path.with_name(segment.path.name.replace(".log", ".index")).read_bytes()
    return [(segment.base_offset + offset, at) for offset, at in struct.iter_unpack(">ii", data)]


def read_time_index(segment: Segment) -> list[tuple[int, int]]:
    """Returns timestamp and last offset of each entry."""
    data = segment.path.with_name(segment.path.name.replace(".log", ".timeindex")).read_bytes()
    return [
        (time, segment.base_offset + offset) for time, offset in struct.iter_unpack(">qi", data)
    ]


def expected_indexes(
    segment: Segment, interval_bytes: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Returns both indexes as the text derives them from a segment's batches."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    last_position, youngest = 0, (-1, segment.base_offset)
    for batch in segment.batches:
        if batch.record_count and batch.max_timestamp > youngest[0]:
            youngest = (batch.max_timestamp, batch.last_offset)
        if batch.position - last_position > interval_bytes:
            last_position = batch.position
            offsets.append((batch.last_offset, batch.position))
            if not times or youngest[0] > times[-1][0]:
                times.append(youngest)
    return offsets, times


# ---------------------------------------------------------------- producers, epochs, metadata


def read_snapshot(path: Path) -> dict[int, tuple[int, int, list[tuple[int, int, int]]]]:
    """Returns epoch, wall time of the last append and batches by producer id."""
    data = path.read_bytes()
    check(xxhash.xxh3_64_intdigest(data[:-8]) == int.from_bytes(data[-8:]), "the checksum fits")
    magic, format_, row_size, count = struct.unpack_from(">4sHHI", data)
    check((magic, format_) == (b"KPRS", 1), "magic and format")
    check(len(data) == 12 + count * row_size + 8, "the sizes fit")
    found = {}
    for at in range(12, 12 + count * row_size, row_size):
        row = struct.unpack_from(">qhhiqq", data, at)
        producer_id, epoch, batch_count, coordinator_epoch, first_offset, time = row
        check((coordinator_epoch, first_offset) == (-1, -1), "no transactions yet")
        batches = list(struct.iter_unpack(">iiq", data[at + 32 : at + 32 + 80]))
        check(batches[batch_count:] == [(0, 0, 0)] * (5 - batch_count), "unused batches are 0")
        found[producer_id] = (epoch, time, batches[:batch_count])
    return found


def read_aborted(directory: Path) -> list[tuple[int, int, int]]:
    """Returns producer id, first offset and marker's offset of each aborted transaction."""
    path = directory / "aborted-transactions"
    if not path.exists():
        return []
    data = path.read_bytes()
    check(xxhash.xxh3_64_intdigest(data[:-8]) == int.from_bytes(data[-8:]), "the checksum fits")
    magic, format_, row_size, count = struct.unpack_from(">4sHHI", data)
    check((magic, format_, row_size) == (b"KABT", 1, 24), "magic, format and row size")
    check(len(data) == 12 + count * row_size + 8, "the sizes fit")
    rows = list(struct.iter_unpack(">qqq", data[12:-8]))
    check(rows == sorted(rows, key=lambda row: row[2]), "markers grow")
    return rows


def read_epochs(directory: Path) -> list[tuple[int, int]]:
    """Returns epoch and start offset of each entry."""
    lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()
    check(lines[0] == "0", "the format")
    entries = [(int(epoch), int(start)) for epoch, start in map(str.split, lines[2:])]
    check(int(lines[1]) == len(entries), "the number of entries")
    return entries


def epoch_of(epochs: list[tuple[int, int]], offset: int) -> int:
    return [epoch for epoch, start in epochs if start <= offset][-1]


def read_metadata(directory: Path) -> tuple[int, dict[str, str]]:
    """Returns the last revision and the map."""
    revision, content, end = 0, dict[str, str](), 1
    snapshots = sorted(directory.glob("*.checkpoint"))
    if snapshots:
        end, rows = read_checkpoint(snapshots[-1])
        content = {key[1:].decode(): value[24:].decode() for key, value in rows if key[:1] == b"e"}
        (revision,) = struct.unpack(">q", dict(rows)[b"r"])
    for index, kind, payload in sorted(entries_in(directory)):
        if index < end:
            continue
        check((index, kind) == (end, 1), "indexes count up by one, and all are commands")
        end, revision = end + 1, revision + 1
        for verb, key, *rest in json.loads(payload)["operations"]:
            if verb == "put":
                content[key] = rest[0]
            elif verb == "delete":
                content.pop(key, None)
    return revision, content


def read_checkpoint(path: Path) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Returns the end of a snapshot and its rows."""
    data = path.read_bytes()
    magic, format_, size, end, term, crc = struct.unpack_from(">4sHHqiI", data)
    check((magic, format_, crc) == (b"KRCP", 1, crc32c.crc32c(data[: size - 4])), "the header")
    check(path.name == f"{end:020d}-{term:010d}.checkpoint", "the name")
    rows, at, digest = list[tuple[bytes, bytes]](), size, 0
    while (block := struct.unpack_from(">II", data, at))[0]:
        body = data[at + 8 : at + 8 + block[0]]
        check(crc32c.crc32c(body) == block[1], "a block's checksum")
        at += 8 + block[0]
        while body:
            key_size, value_size = struct.unpack_from(">II", body)
            key, value = body[8 : 8 + key_size], body[8 + key_size : 8 + key_size + value_size]
            rows.append((key, value))
            digest += xxhash.xxh3_128_intdigest(struct.pack(">I", key_size) + key + value)
            body = body[8 + key_size + value_size :]
    footer = data[at + 8 :]
    check(crc32c.crc32c(footer) == block[1], "the footer's checksum")
    count, found, checksum = struct.unpack(">q16s16s", footer)
    check(checksum == xxhash.xxh3_128_digest(data[:at]), "the file's checksum")
    check((count, int.from_bytes(found)) == (len(rows), digest % 2**128), "rows and digest")
    check(rows == sorted(rows), "rows are in key order")
    return end, rows


def entries_in(directory: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yields index, kind and payload of each entry in a log."""
    for path in sorted(directory.glob("*.replog")):
        data = path.read_bytes()
        magic, format_, flags, base, _, crc = struct.unpack_from(">4sHHqiI", data)
        check((magic, format_, crc) == (b"KRLS", 1, crc32c.crc32c(data[:20])), "the header")
        check(path.name == f"{base:020d}{'.reset' * flags}.replog", "the name")
        at, index = 24, base
        while at + 32 <= len(data):
            magic, size, body_crc, first, _, count, crc = struct.unpack_from(">4sIIqiII", data, at)
            body = data[at + 32 : at + 32 + size]
            if crc != crc32c.crc32c(data[at : at + 28]) or body_crc != crc32c.crc32c(body):
                break
            check((magic, first) == (b"KRLF", index), "indexes count up by one")
            at, index = at + 32 + size, index + count
            for number in range(count):
                kind, length = struct.unpack_from(">BI", body)
                yield first + number, kind, body[5 : 5 + length]
                body = body[5 + length :]
            check(not body, "the number of entries")


def read_history(path: Path) -> list[Any]:
    """Returns the passes in the history, oldest first."""
    passes = []
    for name in ("compaction-history.old", "compaction-history"):
        data = (path / name).read_bytes() if (path / name).exists() else b""
        for line in data.split(b"\n")[:-1]:
            crc, _, text = line.partition(b" ")
            if len(crc) == 8 and int(crc, 16) == crc32c.crc32c(text):
                passes.append(json.loads(text))
    return [each for each in passes if "format" not in each]


def read_ledger(path: Path) -> list[Any]:
    """Returns the entries of the ledger of passes, oldest first."""
    entries: list[Any] = []
    previous = "0" * 64
    for file in sorted((path / "cleaning-ledger").glob("*.ledger")):
        for line in file.read_bytes().splitlines():
            digits, _, text = line.partition(b" ")
            check(hashlib.sha256(text).hexdigest().encode() == digits, "an entry has its hash")
            entry = json.loads(text)
            check(entry["n"] == len(entries), "entries are numbered")
            check(entry["previous"] == previous, "an entry names the one before it")
            previous = digits.decode()
            entries.append(entry)
    return entries


# ---------------------------------------------------------------- a data directory


@dataclass(frozen=True)
class DataDirectory:
    path: Path
    properties: dict[str, str]
    starts: int
    was_clean: bool
    hash_key: bytes
    topics: dict[str, dict[str, Any]]
    history: list[Any]
    ledger: list[Any]
    logs: dict[tuple[str, int], Log]


def read_data_directory(path: Path) -> DataDirectory:
    lines = (path / "meta.properties").read_text().splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    _, metadata = read_metadata(path / "metadata")
    _, node = read_metadata(path / "node")
    topics = {
        key.removeprefix("/topics/"): json.loads(value)
        for key, value in metadata.items()
        if key.startswith("/topics/")
    }
    logs = {}
    for name, topic in topics.items():
        placed = json.loads(node[f"/placed/{topic['id']}"])
        check(placed["name"] == name, "the placement has the topic's name")
        check(len(placed["partitions"]) == topic["partitions"], "every partition is placed")
        for partition, index in enumerate(placed["partitions"]):
            directory_id = placed["directories"][index]
            check(directory_id == properties["directory.id"], "the log is in this directory")
            folder = path / f"{name[:200]}.{topic['id']}" / str(partition)
            logs[name, partition] = read_log(folder)
    return DataDirectory(
        path=path,
        properties=properties,
        starts=int((path / "start-counter").read_text()),
        was_clean=(path / ".clean-shutdown").exists(),
        hash_key=(path / "hash.key").read_bytes(),
        topics=topics,
        history=read_history(path),
        ledger=read_ledger(path),
        logs=logs,
    )
