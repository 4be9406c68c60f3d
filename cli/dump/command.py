"""Carries out `kompakt dump-log`: prints the files of a data directory or verifies them.

Opens everything for reading only and takes no lock, so a broker may be using the directory.
Serves the same purpose as Kafka's kafka-dump-log.sh.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cli.dump.files import directory_section, logs_section, section_of
from cli.dump.keys import keys_section
from cli.dump.kinds import Kind, kind_of
from cli.dump.output import JsonOutput, Output, TableOutput
from cli.dump.segment import Selection, segment_section
from cli.dump.verify import Verification
from storage.files.errors import DamagedFile, DiskError, FormatFromTheFuture, StorageError
from storage.files.files import FileSystem
from storage.files.local_files import ReadOnlyFileSystem
from storage.files.paths import MANIFEST, join
from storage.verify.findings import Severity
from storage.verify.verify import find_logs

EXIT_SOUND, EXIT_FINDINGS, EXIT_MISUSED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The options of the command line."""

    is_verification: bool = False
    as_json: bool = False
    selection: Selection = field(default_factory=Selection)
    key_map_bytes: int | None = None
    """Memory for the check for duplicate keys. None: skip the check."""


def dump_log(paths: Sequence[Path], options: DumpOptions) -> int:
    """Print or verify each path. Returns the exit code: 0 sound, 1 errors or warnings, 2 wrong use."""
    output: Output = JsonOutput() if options.as_json else TableOutput()
    files = ReadOnlyFileSystem()
    return max(_dump_path(files, str(path.resolve()), options, output) for path in paths)


def _dump_path(files: FileSystem, path: str, options: DumpOptions, output: Output) -> int:
    try:
        if options.is_verification:
            return _verify(files, path, options, output)
        if Path(path).is_dir():
            return _print_directory(files, path, output)
        return _print_file(files, path, options, output)
    except DiskError as error:
        return _refuse(str(error))


def _verify(files: FileSystem, path: str, options: DumpOptions, output: Output) -> int:
    if not Path(path).is_dir():
        return _refuse(f"{path}: --verify needs a data, topic or partition directory")
    found = find_logs(files, path)
    if found is None:
        return _refuse(f"{path} is not a data, topic or partition directory")
    counts = Verification(files, found, output, key_map_bytes=options.key_map_bytes).run()
    is_sound = not counts[Severity.ERROR] and not counts[Severity.WARNING]
    return EXIT_SOUND if is_sound else EXIT_FINDINGS


def _print_directory(files: FileSystem, path: str, output: Output) -> int:
    """Print the logs of a data or topic directory, or the files and the manifest of one log."""
    found = find_logs(files, path)
    if found is not None and found.logs != () and found.logs[0].directory != path:
        output.section(logs_section(files, found))
        return EXIT_SOUND
    output.section(directory_section(files, path))
    if files.exists(join(path, MANIFEST)):
        return _print_file(files, join(path, MANIFEST), DumpOptions(), output)
    return EXIT_SOUND


def _print_file(files: FileSystem, path: str, options: DumpOptions, output: Output) -> int:
    kind = kind_of(files, path)
    if kind is None:
        return _refuse(f"{path} is not a file that Kompakt writes")
    try:
        if kind is Kind.SEGMENT:
            output.section(segment_section(files, path, options.selection))
        elif kind is Kind.KEY_SIDECAR:
            output.section(keys_section(files, path, options.selection))
        else:
            output.section(section_of(files, path, kind))
    except (DamagedFile, FormatFromTheFuture) as error:
        return _fail(error)
    except ValueError as error:
        return _fail(DamagedFile(path, str(error)))
    return EXIT_SOUND


def _fail(error: StorageError) -> int:
    print(f"kompakt: {error}", file=sys.stderr)  # noqa: T201
    return EXIT_FINDINGS


def _refuse(reason: str) -> int:
    print(f"kompakt: {reason}", file=sys.stderr)  # noqa: T201
    return EXIT_MISUSED
