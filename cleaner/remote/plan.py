"""Plan and result of a cleaning pass that another process executes, as values with a JSON form.

    plan     from the broker: which segments, where they are, between which offsets, by which rules
    result   from the executor: for each rewritten group the sources, the outputs and the account

The plan names the log's directory below an entry of `log.dirs`; an executor that mounts this entry at
another path uses `moved_to`. The hash key is not in the plan: it lies in `log_dir`, for processes that
may read it. A result names no file: an attempt's outputs lie in `<lease folder>/<attempt>`, named by the
base offsets and file versions of their rows, so the broker never takes a path from outside. Attempts at
the same task do not conflict: each has its own folder, and the result says whose outputs count.

Both have a format version; JSON that is not exactly such a value is refused
(`cleaner/remote/strict_json.py`). Spark sends plans to executors as pickles, which also contain this
JSON, so an executor of a release with another format refuses the plan instead of misreading it.

    format 4    a row's `control_count`
    format 3    a row's `tombstone_bytes` and `tombstones_due_ms`, and their like in an account
    format 2    `hold_offset` in a plan, `expired_offset_max` in an account, the verdict `kept_held`
    format 1    the first; its executors would drop tombstones that a group holds
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from msgspec import Meta, Struct

from cleaner.remote.strict_json import (
    Int64,
    Natural,
    RefusedJson,
    binary_text,
    decode,
    form_of,
    hexadecimal,
    value_of,
)
from cleaner.rules.record_verdict import Verdict
from cleaner.rules.step import GroupAccount
from protocol.wire.numbers import Offset
from storage.files.paths import LEASES, join
from storage.formats.manifest import SegmentRow

FORMAT = 4
"""Increased when older readers would misread the value."""

_ID_DIGITS = 32
_DIGEST_DIGITS = 32
_SUM_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePlan:
    """The plan of a pass, for a process that has access to the files but not to the broker's state."""

    lease: str
    """The lease's id, 32 hexadecimal digits, and the name of its folder in `<log_dir>/leases`."""
    topic: str
    partition: int
    log_dir: str
    """The entry of `log.dirs` that holds the log; `hash.key` lies there."""
    directory: str
    """The log's directory, below `log_dir`: `<topic>.<topic id>/<partition>`."""
    hash_key_check: str
    """The check value of the hash key, as in a key sidecar's header, in hexadecimal digits."""
    generation: int
    log_start_offset: Offset
    clean_offset: Offset
    start_offset: Offset
    """The first dirty offset."""
    end_offset: Offset
    """The first uncleanable offset."""
    now_ms: int
    """Delete horizons up to this wall time have passed."""
    stamp_ms: int
    """New delete horizons count from this wall time."""
    hold_offset: Offset
    """Tombstones and markers at and above it stay even after their delete horizon."""
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    keeps_unkeyed: bool
    decompressed_bytes_max: int
    """The maximum size of one batch's records after decompression."""
    producer_last_offsets: tuple[Offset, ...]
    producer_marker_epochs: Mapping[int, int]
    sealed_rows: tuple[SegmentRow, ...] = field(repr=False)
    """All sealed segments of the log, in offset order."""

    @property
    def log_directory(self) -> str:
        """The directory of the segments."""
        return join(self.log_dir, self.directory)

    @property
    def folder(self) -> str:
        """The lease's folder; executors write only here."""
        return join(join(self.log_dir, LEASES), self.lease)

    def moved_to(self, log_dir: str) -> RemotePlan:
        """Returns the plan for a process that has the log directory at another path."""
        return replace(self, log_dir=log_dir)

    def to_json(self) -> str:
        """Returns the plan as text; `from_json` is the inverse."""
        values = dataclasses.asdict(self)
        values["producer_marker_epochs"] = {
            str(producer): epoch for producer, epoch in self.producer_marker_epochs.items()
        }
        return json.dumps({"format": FORMAT, **values})

    def __reduce__(self) -> tuple[Callable[[str], RemotePlan], tuple[str]]:
        # The pickle of a dataclass with slots has the values alone, which another release would assign
        # to other fields.
        return RemotePlan.from_json, (self.to_json(),)

    @staticmethod
    def from_json(data: str | bytes) -> RemotePlan:
        """Parse a plan. Raises RefusedJson."""
        _check_format(data, "plan")
        plan: Any = decode(data, _PlanForm, "plan")
        return value_of(RemotePlan, plan, sealed_rows=_rows(plan.sealed_rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """The result of rewriting one group of neighbouring segments."""

    attempt: str
    """The attempt whose folder has the outputs: 32 hexadecimal digits."""
    sources: tuple[SegmentRow, ...]
    """Neighbouring rows of the plan."""
    outputs: tuple[SegmentRow, ...]
    """The rows that replace them; file versions are unique within the attempt."""
    account: GroupAccount
    """What must remain of the sources, according to the filter."""

    def __post_init__(self) -> None:
        assert self.sources, "a group has no sources"
        assert self.outputs, "a group has no outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSidecar:
    """A key sidecar that an executor has made for a segment without one."""

    attempt: str
    """The attempt whose folder has it."""
    row: SegmentRow
    """The segment's row in the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteResult:
    """The result of executing a plan."""

    lease: str
    end_offset: Offset
    """Where the pass ended: below the plan's end if a transaction there is not decided."""
    groups: tuple[GroupResult, ...]
    """In offset order; segments in no group stay as they are."""
    keys: tuple[BuiltSidecar, ...] = ()
    """The broker takes these sidecars so that it need not read their segments."""

    def to_json(self) -> str:
        """Returns the result as text; `from_json` is the inverse."""
        groups = [json.loads(group_json(group)) for group in self.groups]
        return json.dumps(
            {
                "format": FORMAT,
                "lease": self.lease,
                "end_offset": self.end_offset,
                "groups": groups,
                "keys": [dataclasses.asdict(each) for each in self.keys],
            }
        )

    @staticmethod
    def from_json(data: str | bytes) -> RemoteResult:
        """Parse a result. Raises RefusedJson."""
        _check_format(data, "result")
        result: Any = decode(data, _ResultForm, "result")
        keys = (value_of(BuiltSidecar, each, row=_row(each.row)) for each in result.keys)
        groups = tuple(map(_group, result.groups))
        return value_of(RemoteResult, result, groups=groups, keys=tuple(keys))


def group_json(group: GroupResult) -> str:
    """Returns a group's result as text, for its way from an executor to the driver."""
    values = dataclasses.asdict(group)
    account = values["account"]
    account["digest"] = f"{group.account.digest:0{_DIGEST_DIGITS}x}"
    account["rebuilt_offset_sum"] = f"{group.account.rebuilt_offset_sum:0{_SUM_DIGITS}x}"
    account["rebuilt"] = binary_text(group.account.rebuilt)
    account["records_by_verdict"] = {
        verdict.value: count for verdict, count in group.account.records_by_verdict.items()
    }
    return json.dumps(values)


def group_from_json(data: str | bytes) -> GroupResult:
    """Parse a group's result. Raises RefusedJson."""
    return _group(decode(data, _GroupForm, "group"))


class _Format(Struct):
    format: Any = None


def _check_format(data: str | bytes, what: str) -> None:
    """Raises RefusedJson if the format version is unknown; the rest is not looked at."""
    found = decode(data, _Format, what).format
    if found != FORMAT:
        raise RefusedJson(f"the {what} has format {found!r}, this release reads format {FORMAT}")


def _row(decoded: Struct) -> SegmentRow:
    return value_of(SegmentRow, decoded)


def _rows(decoded: Iterable[Struct]) -> tuple[SegmentRow, ...]:
    return tuple(map(_row, decoded))


def _group(decoded: Any) -> GroupResult:
    account = decoded.account
    return value_of(
        GroupResult,
        decoded,
        sources=_rows(decoded.sources),
        outputs=_rows(decoded.outputs),
        account=value_of(
            GroupAccount,
            account,
            digest=int(account.digest, 16),
            rebuilt_offset_sum=int(account.rebuilt_offset_sum, 16),
        ),
    )


_Id = hexadecimal(_ID_DIGITS)
_RowForm = form_of(SegmentRow, base_offset=Natural, file_version=Natural)
_RowsForm = tuple[_RowForm, ...]  # type: ignore[valid-type]
_SomeRowsForm = Annotated[_RowsForm, Meta(min_length=1)]
_AccountForm = form_of(
    GroupAccount,
    digest=hexadecimal(_DIGEST_DIGITS),
    batches=Natural,
    rebuilt=bytes,
    rebuilt_offset_sum=hexadecimal(_SUM_DIGITS),
    records_by_verdict=dict[Verdict, Natural],
)
_GroupForm = form_of(
    GroupResult, attempt=_Id, sources=_SomeRowsForm, outputs=_SomeRowsForm, account=_AccountForm
)
_KeysForm = form_of(BuiltSidecar, attempt=_Id, row=_RowForm)
_ResultForm = form_of(
    RemoteResult,
    format=Int64,
    lease=_Id,
    groups=tuple[_GroupForm, ...],  # type: ignore[valid-type]
    keys=tuple[_KeysForm, ...],  # type: ignore[valid-type]
)
_PlanForm = form_of(
    RemotePlan,
    format=Int64,
    lease=_Id,
    topic=str,
    log_dir=str,
    directory=str,
    hash_key_check=str,
    keeps_unkeyed=bool,
    producer_last_offsets=tuple[Int64, ...],
    producer_marker_epochs=dict[Int64, Int64],
    sealed_rows=_RowsForm,
)
