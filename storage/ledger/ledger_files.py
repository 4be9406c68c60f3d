"""The files of a log directory's ledger: found, read, and counted. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from storage.files.errors import MissingFile
from storage.files.files import FileSystem
from storage.files.paths import CLEANING_LEDGER, join
from storage.formats.ledger_entry import (
    NO_HASH,
    Entry,
    Head,
    decode_entry,
    file_name,
    parse_file_name,
)

FIRST_LINE_BYTES_MAX = 1 << 16


def ledger_folder(directory: str) -> str:
    """Returns the folder of a log directory's ledger."""
    return join(directory, CLEANING_LEDGER)


def ledger_numbers(fs: FileSystem, directory: str) -> list[int]:
    """Returns the first numbers of a ledger's files, oldest first; empty if there is none."""
    try:
        names = fs.list(ledger_folder(directory))
    except MissingFile:
        return []
    return sorted(number for name in names if (number := parse_file_name(name)) is not None)


def ledger_path(directory: str, number: int) -> str:
    """Returns the path of the file that begins with an entry."""
    return join(ledger_folder(directory), file_name(number))


def read_entries(
    fs: FileSystem, directory: str, *, wanted: bytes = b"", since: int = 0
) -> Iterator[Entry]:
    """Yields the sound entries of a ledger that contain these bytes, oldest first.

    The broker may append, and remove the oldest file, meanwhile. Memory is bounded by one file.

    Args:
        since: leave out files that end before this entry.

    Raises:
        DiskError: a file cannot be read.
    """
    numbers = ledger_numbers(fs, directory)
    for at, number in enumerate(numbers):
        is_over = at + 1 < len(numbers) and numbers[at + 1] <= since
        if is_over:
            continue
        try:
            data = fs.read_bytes(ledger_path(directory, number))
        except MissingFile:
            continue  # It was the oldest one, and was removed.
        for line in data.split(b"\n")[:-1]:
            if wanted in line and (entry := decode_entry(line)) is not None:
                yield entry


def head_before(fs: FileSystem, directory: str, number: int) -> Head | None:
    """Returns the last entry before a file, as its first line names it; None if that is not sound.

    Raises:
        DiskError: it cannot be read.
    """
    file = fs.open(ledger_path(directory, number))
    try:
        line, newline, _ = file.read_at(0, FIRST_LINE_BYTES_MAX).partition(b"\n")
    finally:
        file.close()
    entry = decode_entry(line) if newline else None
    if entry is None:
        return None
    return Head(entry.number - 1, entry.previous) if entry.previous != NO_HASH else None
