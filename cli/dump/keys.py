"""Reads a key sidecar as a section: one row per block, or one per special row and entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice, zip_longest

from cleaner.rules.latest import NO_VERSION
from cli.dump.kinds import Kind
from cli.dump.section import Row, Section
from cli.dump.segment import Selection
from storage.files.files import FileSystem
from storage.formats.key_sidecar import TOMBSTONE, KeyBlock, KeySidecar

KINDS = {1: "transactional", 2: "commit", 3: "abort", 4: "control", 5: "empty"}
FLAGS = ("is_transactional", "is_control", "has_delete_horizon")


def keys_section(fs: FileSystem, path: str, selection: Selection) -> Section:
    """Read a key sidecar, block by block.

    Raises:
        DamagedSidecar: it is damaged. Also raised while the rows are consumed.
        DiskError: it cannot be read.
    """
    sidecar = KeySidecar.open_any(fs, path)
    rows = _records(sidecar, selection) if selection.with_records else _blocks(sidecar)
    return Section(
        kind=Kind.KEY_SIDECAR.value,
        path=path,
        facts={
            "base_offset": sidecar.header.base_offset,
            "file_version": sidecar.header.file_version,
            "segment_size": sidecar.sums.data_bytes,
            "strategy": sidecar.header.strategy.text,
            **_totals(sidecar),
        },
        rows=islice(rows, selection.limit),
        times=frozenset({"least_delete_horizon_ms"}),
    )


def _totals(sidecar: KeySidecar) -> Row:
    totals = asdict(sidecar.totals)
    # The names of docs/reference/on-disk.md. `tombstones` counts those without a delete horizon.
    names = {"tombstones": "unstamped_tombstones", "unkeyed": "unkeyed_records"}
    return {names.get(name, name): value for name, value in totals.items()}


def _blocks(sidecar: KeySidecar) -> Iterator[Row]:
    for block in sidecar.blocks():
        yield {
            "position": block.position,
            "data_bytes": block.data_bytes,
            "special_rows": block.special_count,
            "entries": block.entry_count,
            "unkeyed": block.unkeyed_count,
            "bytes": len(block.data),
        }


def _records(sidecar: KeySidecar, selection: Selection) -> Iterator[Row]:
    for block in sidecar.blocks():
        for row in (*_special_rows(sidecar, block), *_entries(sidecar, block)):
            if row["last_offset"] >= selection.start_offset:
                yield row


def _special_rows(sidecar: KeySidecar, block: KeyBlock) -> Iterator[Row]:
    for row in block.special_rows():
        flags = [name for bit, name in enumerate(FLAGS) if row.flags & 1 << bit]
        yield {
            "what": KINDS.get(row.kind, str(row.kind)),
            "offset": sidecar.header.base_offset + row.first_offset,
            "last_offset": sidecar.header.base_offset + row.last_offset,
            "bytes": None,
            "key_hash": None,
            "version": None,
            "producer_id": row.producer_id,
            "producer_epoch": row.producer_epoch,
            "flags": " ".join(flags),
        }


def _entries(sidecar: KeySidecar, block: KeyBlock) -> Iterator[Row]:
    for entry, version in zip_longest(block.entries(), block.versions()):
        offset = sidecar.header.base_offset + (entry.offset & ~TOMBSTONE)
        yield {
            "what": "tombstone" if entry.offset & TOMBSTONE else "record",
            "offset": offset,
            "last_offset": offset,
            "bytes": entry.size,
            "key_hash": entry.key_hash.hex(),
            "version": None if version == NO_VERSION else version,
            "producer_id": None,
            "producer_epoch": None,
            "flags": "",
        }
