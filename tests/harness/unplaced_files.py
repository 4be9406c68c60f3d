"""A log that was killed between a swap's commit and its renames: the manifest lists staged files."""

from __future__ import annotations

from storage.files.files import FileSystem
from storage.files.paths import CLEANED, MANIFEST, join, parse_segment_file
from storage.formats.manifest import decode


def unplace(fs: FileSystem, directory: str) -> int:
    """Give the files of all listed cleaned segments their staged names. Returns how many files."""
    path = join(directory, MANIFEST)
    rows = decode(fs.read_bytes(path), path).segments
    cleaned = {(row.base_offset, row.file_version) for row in rows if row.is_cleaned}
    names = {name: parse_segment_file(name) for name in fs.list(directory)}
    staged = [
        name
        for name, file in names.items()
        if file is not None and (file.base_offset, file.version) in cleaned and not file.is_cleaned
    ]
    for name in staged:
        fs.rename(join(directory, name), join(directory, name + CLEANED))
    return len(staged)
