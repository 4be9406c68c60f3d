"""Reads each kind of file as a section of rows. The modules that own the formats decode them.

A section describes one file: facts about the whole file, and an iterator of rows. Rows are read as they
are consumed, so a segment of any size takes the memory of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

from cleaner.rules.text import count_text
from cli.dump.checkpoints import coordinator_checkpoint
from cli.dump.kinds import Kind, base_offset_of
from cli.dump.metadata import (
    metadata_log,
    metadata_snapshot,
    old_metadata_log,
    old_metadata_snapshot,
)
from cli.dump.section import Row, Section
from storage.files.errors import DamagedFile, DiskError, FormatFromTheFuture, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import KEYS, MANIFEST, join, topic_id_text
from storage.formats.ledger_entry import Line, lines_of
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import UNKNOWN, decode
from storage.ledger.pass_history import decode_line
from storage.segment.sealed_index import OFFSET_ENTRY, TIME_ENTRY, EntryFile
from storage.state.aborted_transactions import decode_aborted_transactions
from storage.state.leader_epochs import decode_leader_epochs
from storage.state.producer_state import decode_producer_states
from storage.undo import undo_file
from storage.verify.verify import Found, log_bytes


def section_of(fs: FileSystem, path: str, kind: Kind) -> Section:
    """Read a file of any kind except a segment or a key sidecar.

    Raises:
        DamagedFile, FormatFromTheFuture: it is damaged, or a later release has written it.
        DiskError: it cannot be read.
    """
    return _READERS[kind](fs, path)


def _manifest(fs: FileSystem, path: str) -> Section:
    manifest = decode(fs.read_bytes(path), path)
    facts = {name: getattr(manifest, name) for name in _MANIFEST_FACTS}
    facts["topic_id"] = topic_id_text(manifest.topic_id)
    return Section(
        kind=Kind.MANIFEST.value,
        path=path,
        facts=facts,
        rows=(asdict(row) for row in manifest.segments),
        times=_MANIFEST_TIMES,
    )


_MANIFEST_FACTS = (
    "version",
    "generation",
    "topic_id",
    "partition",
    "log_start_offset",
    "clean_offset",
    "truncate_to",
)
_MANIFEST_TIMES = frozenset(
    {
        "max_timestamp",
        "created_ms",
        "first_append_ms",
        "last_append_ms",
        "least_delete_horizon_ms",
        "tombstones_due_ms",
    }
)


def _offset_index(fs: FileSystem, path: str) -> Section:
    base_offset = base_offset_of(path)
    rows = (
        {"last_offset": base_offset + relative, "position": position}
        for relative, position in _entries(EntryFile(fs, path, OFFSET_ENTRY))
    )
    return Section(kind=Kind.OFFSET_INDEX.value, path=path, rows=rows)


def _time_index(fs: FileSystem, path: str) -> Section:
    base_offset = base_offset_of(path)
    rows = (
        {"timestamp": timestamp, "last_offset": base_offset + relative}
        for timestamp, relative in _entries(EntryFile(fs, path, TIME_ENTRY))
    )
    return Section(kind=Kind.TIME_INDEX.value, path=path, rows=rows, times=frozenset({"timestamp"}))


def _entries(file: EntryFile) -> Iterator[tuple[int, int]]:
    return (file[index] for index in range(file.count))


def _producer_snapshot(fs: FileSystem, path: str) -> Section:
    states = decode_producer_states(fs.read_bytes(path), path)
    rows = (
        {
            "producer_id": producer_id,
            "producer_epoch": state.producer_epoch,
            "coordinator_epoch": state.coordinator_epoch,
            "current_txn_first_offset": state.current_txn_first_offset,
            "last_timestamp": state.last_timestamp,
            "batches": [asdict(batch) for batch in state.batches],
        }
        for producer_id, state in states.items()
    )
    return Section(
        kind=Kind.PRODUCER_SNAPSHOT.value,
        path=path,
        facts={"producers": len(states)},
        rows=rows,
        times=frozenset({"last_timestamp"}),
    )


def _leader_epochs(fs: FileSystem, path: str) -> Section:
    epochs = decode_leader_epochs(fs.read_bytes(path), path)
    rows = ({"epoch": epoch, "start_offset": start} for epoch, start in epochs.entries)
    return Section(kind=Kind.LEADER_EPOCHS.value, path=path, rows=rows)


def _aborted_transactions(fs: FileSystem, path: str) -> Section:
    aborted = decode_aborted_transactions(fs.read_bytes(path), path)
    names = ("producer_id", "first_offset", "marker_offset")
    rows = (dict(zip(names, row, strict=True)) for row in aborted.rows)
    return Section(kind=Kind.ABORTED_TRANSACTIONS.value, path=path, rows=rows)


def _undo_file(fs: FileSystem, path: str) -> Section:
    ended, kept = undo_file.decode(fs.read_bytes(path), path)
    rows: list[Row] = [
        {"number": each.number, "state": each.reason.name.lower(), "at": each.ended_ms}
        for each in ended
    ]
    rows += [
        {
            "number": each.number,
            "state": "kept",
            "at": each.kept_ms,
            "clean_offset": each.clean_offset,
            "has_history": each.has_history,
            "has_unfinished_pass": each.has_unfinished_pass,
            "aborted_transactions": len(each.aborted),
            "swaps": [asdict(swap) for swap in each.swaps],
        }
        for each in kept
    ]
    return Section(kind=Kind.UNDO_FILE.value, path=path, rows=iter(rows), times=frozenset({"at"}))


def _compaction_history(fs: FileSystem, path: str) -> Section:
    *lines, torn = fs.read_bytes(path).split(b"\n")
    entries = [entry for line in lines if (entry := decode_line(line)) is not None]
    damaged = len(lines) - len(entries) + bool(torn)
    facts: Row = {"format": entries[0].get("format") if entries else None}
    if damaged:
        facts["damage"] = count_text(damaged, "damaged line")
    passes = (_pass_row(entry) for entry in entries if "topic" in entry)
    times = frozenset({"ended_ms"})
    return Section(
        kind=Kind.COMPACTION_HISTORY.value, path=path, facts=facts, rows=passes, times=times
    )


def _pass_row(entry: Row) -> Row:
    """Returns a pass with its common fields as columns and all others in one column `rest`."""
    columns = {name: entry.get(name) for name in _PASS_COLUMNS}
    rest = {name: value for name, value in entry.items() if name not in columns}
    return columns | {"rest": rest}


_PASS_COLUMNS = (
    "ended_ms",
    "result",
    "topic",
    "partition",
    "seconds",
    "reason",
    "start_offset",
    "end_offset",
    "bytes_before",
    "bytes_after",
    "error",
)


def _text(fs: FileSystem, path: str) -> Section:
    lines = fs.read_bytes(path).decode("utf-8", "replace").splitlines()
    return Section(kind=Kind.TEXT.value, path=path, rows=iter([{"line": line} for line in lines]))


def _ledger(fs: FileSystem, path: str) -> Section:
    """Returns the entries of a ledger's file; damaged ones by their position."""
    return Section(
        kind=Kind.LEDGER.value,
        path=path,
        rows=(_ledger_row(line) for line in lines_of(fs.read_bytes(path))),
        times=frozenset({"at_ms"}),
    )


def _ledger_row(line: Line) -> Row:
    entry = line.entry
    members = {} if entry is None else entry.members
    return {
        "position": line.position,
        "bytes": line.size,
        "number": None if entry is None else entry.number,
        "at_ms": UNKNOWN if entry is None else entry.at_ms,
        "kind": "not an entry" if entry is None else entry.kind,
        **{name: members.get(name) for name in ("pass", "topic", "partition", "result", "why")},
        "hash": None if entry is None else entry.hash,
    }


def _hash_key(fs: FileSystem, path: str) -> Section:
    return _secret(Kind.HASH_KEY, fs, path)


def _signing_key(fs: FileSystem, path: str) -> Section:
    return _secret(Kind.SIGNING_KEY, fs, path)


def _secret(kind: Kind, fs: FileSystem, path: str) -> Section:
    return Section(kind=kind.value, path=path, facts={"size": fs.size(path), "shown": "never"})


_READERS: dict[Kind, Callable[[FileSystem, str], Section]] = {
    Kind.MANIFEST: _manifest,
    Kind.OFFSET_INDEX: _offset_index,
    Kind.TIME_INDEX: _time_index,
    Kind.PRODUCER_SNAPSHOT: _producer_snapshot,
    Kind.LEADER_EPOCHS: _leader_epochs,
    Kind.ABORTED_TRANSACTIONS: _aborted_transactions,
    Kind.UNDO_FILE: _undo_file,
    Kind.METADATA_LOG: metadata_log,
    Kind.METADATA_SNAPSHOT: metadata_snapshot,
    Kind.OLD_METADATA_LOG: old_metadata_log,
    Kind.OLD_METADATA_SNAPSHOT: old_metadata_snapshot,
    Kind.COORDINATOR_CHECKPOINT: coordinator_checkpoint,
    Kind.COMPACTION_HISTORY: _compaction_history,
    Kind.TEXT: _text,
    Kind.HASH_KEY: _hash_key,
    Kind.LEDGER: _ledger,
    Kind.SIGNING_KEY: _signing_key,
}


def directory_section(fs: FileSystem, path: str) -> Section:
    """Returns the files of a directory with their sizes."""
    return Section(kind="directory", path=path, rows=_sizes(fs, path))


def _sizes(fs: FileSystem, path: str) -> Iterator[Row]:
    for name in fs.list(path):
        try:
            yield {"name": name, "size": fs.size(join(path, name))}
        except MissingFile:
            continue


def logs_section(fs: FileSystem, found: Found) -> Section:
    """Returns the logs of a data directory or of a topic, with numbers from their manifests."""
    facts: Row = {"logs": len(found.logs)}
    if found.start_counter is not None:
        facts["start_counter"] = found.start_counter
        facts["clean_shutdown_marker"] = found.was_clean
    return Section(
        kind="logs", path=found.path, facts=facts, rows=(_log_row(fs, log) for log in found.logs)
    )


def _log_row(fs: FileSystem, log: LogIdentity) -> Row:
    row: Row = {"topic": log.topic_partition.topic, "partition": log.topic_partition.partition}
    path = join(log.directory, MANIFEST)
    try:
        manifest = decode(fs.read_bytes(path), path)
    except (DiskError, DamagedFile, FormatFromTheFuture) as error:
        return {**row, **dict.fromkeys(_LOG_NUMBERS), "problem": str(error)}
    numbers = (
        len(manifest.segments),
        manifest.log_start_offset,
        manifest.clean_offset,
        max(manifest.segments[-1].base_offset, manifest.segments[-1].end_offset),
        manifest.generation,
        log_bytes(fs, log.directory),
        log_bytes(fs, log.directory, KEYS),
    )
    return {**row, **dict(zip(_LOG_NUMBERS, numbers, strict=True)), "problem": None}


_LOG_NUMBERS = (
    "segments",
    "log_start_offset",
    "clean_offset",
    "recovery_point",
    "generation",
    "bytes",
    "key_sidecar_bytes",
)
