"""The metadata store's files: whether every transaction that was acknowledged can be read."""

from __future__ import annotations

from cleaner.text import count_text
from server.metadata_files import NAME, read_metadata
from storage.errors import CorruptLog, DamagedFile, StorageError
from storage.files import FileSystem
from storage.findings import Check, Finding, Findings


def verify_metadata(files: FileSystem, directory: str) -> tuple[Finding, ...]:
    """Read the newest snapshot and the transactions after it, and say what is wrong."""
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
            text = (
                f"a crash cut its last transaction off: {count_text(len(found.torn), 'byte')} of it"
            )
            findings.note(Check.METADATA, found.log_path or directory, text, found.log_end)
        _explain_names(files, directory, findings)
    return findings.all()


def _explain_names(files: FileSystem, directory: str, findings: Findings) -> None:
    for name in files.list(directory):
        if name.startswith("cut."):
            text = "cut aside: a transaction that a crash had torn"
            findings.note(Check.METADATA, f"{directory}/{name}", text)
        elif not NAME.fullmatch(name):
            findings.note(Check.METADATA, f"{directory}/{name}", "no name that Kompakt gives")
