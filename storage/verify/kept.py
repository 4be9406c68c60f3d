"""Verifies the undo file of a log, and that the segments which it keeps are there."""

from __future__ import annotations

from collections.abc import Collection

from storage.files.errors import DamagedFile, FormatFromTheFuture, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import LOG, UNDO, join, segment_file
from storage.formats.manifest import Manifest
from storage.undo.kept_passes import is_there, kept_names
from storage.undo.undo_file import decode
from storage.undo.undo_rule import Name, Stack, as_found, name_of
from storage.verify.findings import Check, Findings


def check_undo_file(
    fs: FileSystem, directory: str, manifest: Manifest, findings: Findings
) -> Collection[Name]:
    """Check the undo file if the manifest says that it holds.

    Returns the names of the segments that are kept, so that passes can be undone.
    """
    if not manifest.has_undo_file:
        return ()
    path = join(directory, UNDO)
    try:
        ended, kept = decode(fs.read_bytes(path), path)
    except (DamagedFile, FormatFromTheFuture, MissingFile) as error:
        findings.warn(Check.FILES, path, f"{error}; no pass of the log can be undone")
        return ()
    listed = {name_of(row) for row in manifest.segments}
    stack = as_found(Stack(kept, ended), listed, manifest.log_start_offset)
    for each in stack.kept:
        for row in each.sources:
            if not is_there(fs, directory, row):
                name = segment_file(row.base_offset, row.file_version, LOG)
                text = f"it is missing or too short, so pass {each.number} cannot be undone"
                findings.warn(Check.FILES, join(directory, name), text)
    return kept_names(stack)
