"""Checks that every acknowledged transaction in the metadata store's files can be read."""

from __future__ import annotations

from cleaner.rules.text import count_text
from server.metadata.files import NAME, read_metadata
from storage.files.errors import CorruptLog, DamagedFile, StorageError
from storage.files.files import FileSystem
from storage.verify.findings import Check, Finding, Findings


def verify_metadata(files: FileSystem, directory: str) -> tuple[Finding, ...]:
    """Read the newest snapshot and the transactions after it. Returns what is wrong."""
    findings = Findings()
    try:
        found = read_metadata(files, directory)
    except CorruptLog as error:
        findings.error(Check.METADATA, error.path, error.reason, error.position)
    except DamagedFile as error:
        findings.error(Check.METADATA, error.path, error.reason)
    except StorageError as error:
        findings.error(Check.METADATA, directory, str(error))
    else:
        if found.torn:
            size = count_text(len(found.torn), "byte")
            text = f"a crash tore the last transaction ({size} left)"
            findings.note(Check.METADATA, found.log_path or directory, text, found.log_end)
        _note_leftovers(files, directory, findings)
    return findings.all()


def _note_leftovers(files: FileSystem, directory: str, findings: Findings) -> None:
    for name in files.list(directory):
        if name.startswith("cut."):
            text = "kept aside: a transaction that a crash tore"
            findings.note(Check.METADATA, f"{directory}/{name}", text)
        elif not NAME.fullmatch(name):
            findings.note(Check.METADATA, f"{directory}/{name}", "not a file of the metadata store")
