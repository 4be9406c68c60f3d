"""The executor's tasks on one log of a distributed cleaning; no Spark.

Each task runs in its own `RemotePass` and returns an `Outcome`: damage, an expired lease or a failing
disk reach the driver as a message and fail only their log. A task that runs twice writes two folders,
and the result names one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cleaner.pacing.meter import CleaningAborted, unpaced_meter
from cleaner.passes.mark import Marked
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.remote.execute import LeaseGone, RemotePass, SegmentKeys, WrongHashKey
from cleaner.remote.plan import RemotePlan, group_json
from cleaner.rules.record_verdict import AbortedTransaction
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Offset
from storage.files.errors import StorageError

T = TypeVar("T")
Work = Callable[[RemotePass], T]

FAILURES = (
    CleaningAborted,
    LeaseGone,
    ProtocolError,
    StorageError,
    VerificationFailed,
    WrongHashKey,
)
"""Exceptions that fail one log, with their message; any other is a bug of ours, or of Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """The result of a task, and the bytes that it has read and written."""

    value: T | None = None
    error: str | None = None
    """The reason why its log cannot be cleaned; there is no value then."""
    doubts_sidecars: bool = False
    """Whether the outputs did not pass verification: a key sidecar may disagree with its segment."""
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The part of a `DirtySection` that travels between processes."""

    end_offset: Offset
    """The offset at which the pass ends."""
    aborted: tuple[AbortedTransaction, ...] = ()


def attempt(plan: RemotePlan, work: Work[T]) -> Outcome[T]:
    """Run a task of a plan. Returns its outcome."""
    meter = unpaced_meter()
    value, said, doubts = None, None, False
    try:
        with RemotePass(plan, meter=meter) as executor:
            value = work(executor)
    except FAILURES as error:
        said = str(error) or type(error).__name__
        doubts = isinstance(error, VerificationFailed)
    return Outcome(
        value=value,
        error=said,
        doubts_sidecars=doubts,
        bytes_read=meter.bytes_read,
        bytes_written=meter.bytes_written,
    )


def segments_count(executor: RemotePass) -> int:
    """Returns the number of segments that the pass looks at."""
    return len(executor.numbers)


def index(executor: RemotePass, *, number: int, rebuild: bool) -> SegmentKeys:
    """Returns a segment's keys: from the sidecar beside it, or from one made in the attempt's folder."""
    return executor.index(number, rebuild=rebuild)


def open_all(executor: RemotePass, *, keys: Sequence[SegmentKeys]) -> None:
    """Check that the sidecars which were found or made still exist."""
    for each in keys:
        executor.open_segment(each)


def section(executor: RemotePass, *, keys: Sequence[SegmentKeys]) -> Section:
    """Returns the outcome of a log's transactions."""
    found = executor.section(keys)
    aborted = tuple(found.transactions.aborted) if found.transactions else ()
    return Section(end_offset=found.end_offset, aborted=aborted)


def groups(
    executor: RemotePass, *, keys: Sequence[SegmentKeys], marked: Sequence[Marked]
) -> tuple[slice, ...]:
    """Returns the groups of a log without transactions: the segments to rewrite, with neighbours."""
    found_section = executor.section(keys)
    found = [
        executor.findings(each, its, found_section) for each, its in zip(keys, marked, strict=True)
    ]
    return executor.groups(found)


def recopy(
    executor: RemotePass,
    *,
    keys: Sequence[SegmentKeys],
    marked: Sequence[Marked],
    whole_log: bool,
) -> tuple[str, ...]:
    """Rewrite one group, or a whole log with its transactions. Returns the groups' results as JSON."""
    found = executor.section(keys)
    if whole_log:
        return tuple(map(group_json, executor.recopy_log(keys, marked, found)))
    result = executor.recopy_group(keys, marked, found)
    return () if result is None else (group_json(result),)
