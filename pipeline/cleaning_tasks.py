"""What an executor's tasks do to one log of a distributed cleaning; no Spark.

Each runs in a `RemotePass` of its own and ends in an `Outcome`: damage, a lease that has ended or a
disk that fails are told to the driver as a sentence and fail their log alone. A task that runs twice
writes two folders, of which the result names one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cleaner.mark import Marked
from cleaner.meter import CleaningAborted, PassMeter
from cleaner.probe import SilentProbe
from cleaner.remote_pass import LeaseGone, RemotePass, SegmentKeys, WrongHashKey
from cleaner.remote_plan import RemotePlan, group_json
from cleaner.retain import AbortedTransaction
from cleaner.throttle import Throttle
from cleaner.verify_pass import VerificationFailed
from protocol.errors import ProtocolError
from storage.errors import StorageError

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
"""What fails a log and is told of it; whatever else is raised is a mistake of ours, or Spark's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """How a task ended, and what it has read and written."""

    value: T | None = None
    error: str | None = None
    """Why its log cannot be cleaned; there is no value then."""
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What of a `DirtySection` can travel."""

    end_offset: int
    """Where the pass ends."""
    aborted: tuple[AbortedTransaction, ...] = ()


def attempt(plan: RemotePlan, work: Work[T]) -> Outcome[T]:
    """Do a task of a plan, and say how it ended."""
    meter = PassMeter(
        throttle=Throttle(clock=time.monotonic),
        probe=SilentProbe(),
        sleep=lambda _seconds: False,
        is_stale=lambda: False,
    )
    value, said = None, None
    try:
        with RemotePass(plan, meter=meter) as executor:
            value = work(executor)
    except FAILURES as error:
        said = str(error) or type(error).__name__
    return Outcome(
        value=value, error=said, bytes_read=meter.bytes_read, bytes_written=meter.bytes_written
    )


def segments_count(executor: RemotePass) -> int:
    """How many segments the pass looks at."""
    return len(executor.numbers)


def index(executor: RemotePass, *, number: int) -> SegmentKeys:
    """A segment's keys: of the sidecar beside it, or made in the attempt's folder."""
    return executor.index(number)


def open_all(executor: RemotePass, *, keys: Sequence[SegmentKeys]) -> None:
    """See that the sidecars which were found or made are still there."""
    for each in keys:
        executor.opened(each)


def section(executor: RemotePass, *, keys: Sequence[SegmentKeys]) -> Section:
    """What became of a log's transactions."""
    found = executor.section(keys)
    aborted = tuple(found.transactions.aborted) if found.transactions else ()
    return Section(end_offset=found.end_offset, aborted=aborted)


def groups(
    executor: RemotePass, *, keys: Sequence[SegmentKeys], marked: Sequence[Marked]
) -> tuple[slice, ...]:
    """Which segments of a log without transactions are rewritten, and with which neighbours."""
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
    """Rewrite one group, or a whole log with its transactions; the groups' results as JSON."""
    found = executor.section(keys)
    if whole_log:
        return tuple(map(group_json, executor.recopy_log(keys, marked, found)))
    result = executor.recopy_group(keys, marked, found)
    return () if result is None else (group_json(result),)
