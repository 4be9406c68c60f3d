"""Writes the metadata store's files as earlier releases did (`server/metadata/old_files.py`)."""

from __future__ import annotations

import json
from typing import Any

from protocol.records.batch_scan import crc32c
from server.metadata.machine import Operation
from server.metadata.old_files import FORMAT, FRAME, MAGIC, SNAPSHOT, State
from storage.files.files import FileSystem


def write_old_log(
    files: FileSystem, directory: str, first_revision: int, transactions: list[list[Operation]]
) -> str:
    """Write a log whose first transaction has this revision. Returns its path."""
    contents: list[dict[str, Any]] = [{"format": FORMAT}]
    contents += [
        {"revision": revision, "operations": operations}
        for revision, operations in enumerate(transactions, first_revision)
    ]
    path = f"{directory}/{first_revision:020d}.log"
    files.write_bytes(path, b"".join(old_frame(content) for content in contents))
    files.sync_directory(directory)
    return path


def write_old_snapshot(files: FileSystem, directory: str, state: State) -> str:
    """Write a snapshot. Returns its path."""
    payload = _json({"revision": state.revision, "entries": state.entries, "leases": state.leases})
    path = f"{directory}/{state.revision:020d}.snapshot"
    files.replace_durably(path, SNAPSHOT.pack(MAGIC, FORMAT, 0, crc32c(payload)) + payload)
    return path


def old_frame(content: dict[str, Any]) -> bytes:
    """Returns one frame of a log."""
    payload = _json(content)
    return FRAME.pack(len(payload), crc32c(payload)) + payload


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
