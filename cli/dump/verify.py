"""Carries out `kompakt dump-log --verify`: checks a directory, prints findings and totals."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

from cleaner.inspect.verify_keys import verify_keys
from cleaner.inspect.verify_sidecars import verify_sidecars
from cli.base.output import progress_bars
from cli.dump.checkpoints import verify_checkpoint
from cli.dump.output import Output
from cli.dump.verify_metadata import verify_metadata
from cli.dump.verify_topics import verify_topics
from storage.files.files import FileSystem
from storage.verify.findings import Finding, LogReport, Severity
from storage.verify.log import verify_log
from storage.verify.verify import Found, check_start_counter


class Verification:
    """One verification of one directory."""

    __slots__ = ("_counts", "_found", "_fs", "_key_map_bytes", "_output", "_reports")

    def __init__(
        self, fs: FileSystem, found: Found, output: Output, *, key_map_bytes: int | None
    ) -> None:
        """`key_map_bytes` is the memory for the check for duplicate keys; None skips the check."""
        # Constant after construction
        self._fs = fs
        self._found = found
        self._output = output
        self._key_map_bytes = key_map_bytes
        # State
        self._counts: Counter[Severity] = Counter()
        self._reports: list[LogReport] = []

    def run(self) -> Counter[Severity]:
        """Run all checks and print the results. Returns the number of findings of each severity.

        Raises:
            DiskError: a directory cannot be listed.
        """
        found = self._found
        self._report(found.findings)
        if found.metadata is not None:
            self._report(verify_metadata(self._fs, found.metadata))
            self._report(verify_topics(self._fs, found))
        if found.node_metadata is not None:
            self._report(verify_metadata(self._fs, found.node_metadata))
        with _progress(lambda: found.log_bytes(self._fs)) as progress:
            for identity in found.logs:
                report = verify_log(
                    self._fs, identity, was_clean=found.was_clean, progress=progress
                )
                report.findings += verify_sidecars(self._fs, identity)
                report.findings += verify_checkpoint(self._fs, identity)
                if self._key_map_bytes is not None:
                    report.findings += verify_keys(
                        self._fs, identity, map_bytes=self._key_map_bytes
                    )
                self._reports.append(report)
                self._output.log(report)
                self._report(report.findings)
        self._report(check_start_counter(found, self._reports))
        self._output.summary(self._totals())
        return self._counts

    def _report(self, findings: Iterable[Finding]) -> None:
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
    """Yield a function that advances a progress bar by a number of bytes, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with progress_bars(*columns) as bar:
        task = bar.add_task("verify", total=total())
        yield lambda count: bar.advance(task, count)
