"""What a log may hold after a crash, and whether what was recovered is one of these."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from protocol.records.batch_header import read_header
from storage.files.paths import KEYS, LOG, parse_segment_file
from storage.formats.manifest import decode
from storage.log.log import PartitionLog
from storage.verify.findings import Severity
from storage.verify.log import verify_log
from tests.harness.key_blocks import check_sidecar
from tests.harness.log_home import LogHome, read_all

Content = dict[int, tuple[int, bytes | None, bytes | None]]
"""Timestamp, key and value by offset."""


@dataclass(frozen=True, slots=True)
class Possible:
    """A content that the log may have after a crash: records below any end in [end_min, end_max]."""

    records: Content
    start: int
    end_min: int
    end_max: int

    def is_that_of(self, log: PartitionLog, content: Content) -> bool:
        """Whether a recovered log with `content` is as this allows."""
        end = log.log_end_offset
        return (
            self.end_min <= end <= self.end_max
            and log.log_start_offset == self.start
            and content == {at: r for at, r in self.records.items() if self.start <= at < end}
        )

    def __str__(self) -> str:
        return f"[{self.start}, {self.end_min} to {self.end_max}) with {sorted(self.records)}"


def check_content(log: PartitionLog, possible: list[Possible]) -> Content:
    """The log's records, which must be a possible content."""
    content = read_content(log)
    end = log.log_end_offset
    assert log.high_watermark == end
    assert any(each.is_that_of(log, content) for each in possible), (
        f"[{log.log_start_offset}, {end}) holds {sorted(content)}; possible:"
        f" {' or '.join(map(str, possible))}"
    )
    return content


def check_timestamps(log: PartitionLog, content: Content, random: Random) -> None:
    """Records are found by their times."""
    times = {at: record[0] for at, record in content.items()}
    wanted = random.choice([*times.values(), 0])
    found = log.reader.offset_for_timestamp(wanted)
    first = min((at for at, time in times.items() if time >= wanted), default=None)
    assert (found and found.offset) == first, f"{found} is not the first at or after {wanted}"
    youngest = log.reader.offset_of_max_timestamp()
    largest = max(times.values(), default=None)
    first = min((at for at, time in times.items() if time == largest), default=None)
    assert (youngest and youngest.offset) == first, f"{youngest} is not the youngest"


def check_epochs(log: PartitionLog) -> None:
    """The epochs begin in order, inside the log, and the first batch's is known."""
    starts = [start for _, start in log.epochs.entries]
    assert starts == sorted(starts)
    assert all(start <= log.log_end_offset for start in starts)
    if log.size_bytes and log.segments[0].size:
        data = log.segments[0].files.open().read_at(0, 61)
        first = read_header(data).leader_epoch
        assert log.reader.end_offset_for_epoch(first)[0] == first


def read_content(log: PartitionLog) -> Content:
    """Every record by its offset, as a client reads them."""
    return {r.offset: (r.timestamp, r.key, r.value) for r in read_all(log)}


def check_files(home: LogHome, log: PartitionLog) -> None:
    """The manifest lists just the segment files that are there, with their sizes."""
    directory = home.identity.directory
    manifest = decode(home.fs.read_bytes(f"{directory}/manifest"), "manifest")
    assert manifest.truncate_to == -1
    files = [parse_segment_file(name) for name in home.fs.list(directory)]
    there = {(f.base_offset, f.version) for f in files if f is not None and f.kind == LOG}
    assert not any(f.is_cleaned for f in files if f is not None)
    listed = {(row.base_offset, row.file_version) for row in manifest.segments}
    assert there == listed, f"files {sorted(there)} and manifest {sorted(listed)}"
    # A segment that may be appended to again has no key sidecar.
    sealed = {(row.base_offset, row.file_version) for row in manifest.segments[:-1]}
    assert {(f.base_offset, f.version) for f in files if f is not None and f.kind == KEYS} <= sealed
    for segment, row in zip(log.segments, manifest.segments, strict=True):
        size = home.fs.size(segment.path(LOG))
        assert size == (row.size if segment.is_sealed else segment.size), segment


def check_keys(home: LogHome, log: PartitionLog) -> int:
    """What a key sidecar says is so, or it is known to be no good; how many can be used."""
    segments = log.cleaning_view().segments
    return sum(check_sidecar(segment, home.identity.hash_key) for segment in segments)


def check_verified(home: LogHome) -> None:
    """Nothing is damaged or missing: what a crash leaves is only to be tidied up."""
    errors = verify_log(home.fs, home.identity).errors
    assert not errors, "\n".join(map(str, errors))


def check_in_order(home: LogHome) -> None:
    """`kompakt dump-log --verify` has not even a warning for a log that was recovered."""
    report = verify_log(home.fs, home.identity)
    wrong = [str(each) for each in report.findings if each.severity is not Severity.NOTE]
    assert not wrong, "\n".join(wrong)
