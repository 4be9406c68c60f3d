"""Checks that every acknowledged transaction in the metadata store's files can be read."""

from __future__ import annotations

from cleaner.rules.text import count_text
from replog import checkpoints, segment
from replog.recovery import plan_start
from replog.replica import read_directory
from server.metadata import old_files
from server.metadata.log import read_machine
from storage.files.errors import CorruptLog, DamagedFile, StorageError
from storage.files.files import FileSystem
from storage.verify.findings import Check, Finding, Findings

OWN = (segment.NAME, checkpoints.NAME, old_files.NAME)


def verify_metadata(files: FileSystem, directory: str) -> tuple[Finding, ...]:
    """Read the newest snapshot and the transactions after it. Returns what is wrong."""
    findings = Findings()
    try:
        read_machine(files, directory)
        _note_torn(files, directory, findings)
    except CorruptLog as error:
        findings.error(Check.METADATA, error.path, error.reason, error.position)
    except DamagedFile as error:
        findings.error(Check.METADATA, error.path, error.reason)
    except StorageError as error:
        findings.error(Check.METADATA, directory, str(error))
    else:
        _note_damaged_snapshots(files, directory, findings)
        _note_leftovers(files, directory, findings)
    return findings.all()


def _note_torn(files: FileSystem, directory: str, findings: Findings) -> None:
    plan = plan_start(directory, *read_directory(files, directory))
    if plan.log and plan.log[-1].torn:
        last = plan.log[-1]
        text = f"a crash tore the last transaction ({count_text(len(last.torn), 'byte')} left)"
        findings.note(Check.METADATA, last.segment.path, text, last.segment.size)
    elif not plan.log and old_files.has_old_files(files, directory):
        found = old_files.read_metadata(files, directory)
        if found.torn:
            text = f"a crash tore the last transaction ({count_text(len(found.torn), 'byte')} left)"
            findings.note(Check.METADATA, found.log_path or directory, text, found.log_end)


def _note_damaged_snapshots(files: FileSystem, directory: str, findings: Findings) -> None:
    """Report snapshots that a start does without: an older one and the log replace them."""
    _, snapshots = read_directory(files, directory)
    for each in snapshots:
        if each.problem is not None:
            findings.warn(Check.METADATA, each.path, each.problem)


def _note_leftovers(files: FileSystem, directory: str, findings: Findings) -> None:
    for name in files.list(directory):
        if name.startswith("cut."):
            text = "kept aside: a transaction that a crash tore"
            findings.note(Check.METADATA, f"{directory}/{name}", text)
        elif not any(own.fullmatch(name.removesuffix(checkpoints.PART)) for own in OWN):
            findings.note(Check.METADATA, f"{directory}/{name}", "not a file of the metadata store")
