"""`kompakt dump-log --verify`: look at a whole directory, say what is wrong as it is found, sum up."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

from cleaner.verify_keys import verify_keys
from cleaner.verify_sidecars import verify_sidecars
from server.command_output import progress_bars
from server.dump_output import Output
from server.verify_metadata import verify_metadata
from server.verify_topics import verify_topics
from storage.files import FileSystem
from storage.findings import Finding, LogReport, Severity
from storage.verify import Found, check_start_counter
from storage.verify_log import verify_log


class Verification:
    """One run over one directory; `run` says how often each severity was found."""

    __slots__ = ("_counts", "_found", "_fs", "_key_map_bytes", "_output", "_reports")

    def __init__(
        self, fs: FileSystem, found: Found, output: Output, *, key_map_bytes: int | None
    ) -> None:
        """`key_map_bytes`: memory for the check of keys; None leaves that out."""
        # Constant after construction
        self._fs = fs
        self._found = found
        self._output = output
        self._key_map_bytes = key_map_bytes
        # State
        self._counts: Counter[Severity] = Counter()
        self._reports: list[LogReport] = []

    def run(self) -> Counter[Severity]:
        """Everything. Raises DiskError where not even names can be read."""
        found = self._found
        self._say(found.findings)
        if found.metadata is not None:
            self._say(verify_metadata(self._fs, found.metadata))
            self._say(verify_topics(self._fs, found))
        with _progress(lambda: found.log_bytes(self._fs)) as progress:
            for identity in found.logs:
                report = verify_log(
                    self._fs, identity, was_clean=found.was_clean, progress=progress
                )
                report.findings += verify_sidecars(self._fs, identity)
                if self._key_map_bytes is not None:
                    report.findings += verify_keys(
                        self._fs, identity, map_bytes=self._key_map_bytes
                    )
                self._reports.append(report)
                self._output.log(report)
                self._say(report.findings)
        self._say(check_start_counter(found, self._reports))
        self._output.summary(self._totals())
        return self._counts

    def _say(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._counts[finding.severity] += 1
            self._output.finding(finding)

    def _totals(self) -> dict[str, int]:
        reports = self._reports
        return {
            "logs": len(reports),
            "segments": sum(report.segments for report in reports),
            "batches": sum(report.batches for report in reports),
            "records": sum(report.records for report in reports),
            "bytes": sum(report.bytes for report in reports),
            **{f"{severity.value}s": self._counts[severity] for severity in Severity},
        }


@contextmanager
def _progress(total: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """A bar on standard error if that is a terminal; gets the bytes that were read."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with progress_bars(*columns) as bar:
        task = bar.add_task("verify", total=total())
        yield lambda count: bar.advance(task, count)
