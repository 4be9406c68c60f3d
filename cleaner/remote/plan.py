"""Plan and result of a cleaning pass that another process executes, as values with a JSON form.

    plan     from the broker: which segments, where they are, between which offsets, by which rules
    result   from the executor: for each rewritten group the sources, the outputs and the account

The plan names the log's directory below an entry of `log.dirs`; an executor that mounts this entry at
another path uses `moved_to`. The hash key is not in the plan: it lies in `log_dir`, for processes that
may read it. A result names no file: an attempt's outputs lie in `<lease folder>/<attempt>`, named by the
base offsets and file versions of their rows, so the broker never takes a path from outside. Attempts at
the same task do not conflict: each has its own folder, and the result says whose outputs count.

Both have a format version; JSON that is not exactly such a value is refused
(`cleaner/remote/strict_json.py`).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cleaner.remote.strict_json import (
    Json,
    RefusedJson,
    binary,
    binary_text,
    boolean,
    integer,
    mapping,
    natural,
    parsed,
    several,
    text,
    unsigned,
    value_of,
)
from cleaner.rules.retain import Verdict
from cleaner.rules.step import GroupAccount
from storage.files.paths import LEASES, join
from storage.formats.manifest import SegmentRow

FORMAT = 1
"""Increased when older readers would misread the value."""

_ID = re.compile(r"[0-9a-f]{32}")
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
    log_start_offset: int
    clean_offset: int
    start_offset: int
    """The first dirty offset."""
    end_offset: int
    """The first uncleanable offset."""
    now_ms: int
    """Delete horizons up to this wall time have passed."""
    stamp_ms: int
    """New delete horizons count from this wall time."""
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    keeps_unkeyed: bool
    decompressed_bytes_max: int
    """The maximum size of one batch's records after decompression."""
    producer_last_offsets: tuple[int, ...]
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

    @staticmethod
    def from_json(data: str | bytes) -> RemotePlan:
        """Parse a plan. Raises RefusedJson."""
        plan: RemotePlan = _read_plan(_unversioned(parsed(data), "plan"), "plan")
        return plan


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
    end_offset: int
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
        result: RemoteResult = _read_result(_unversioned(parsed(data), "result"), "result")
        return result


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
    group: GroupResult = _read_group(parsed(data), "group")
    return group


def _unversioned(raw: Json, what: str) -> dict[str, Any]:
    """Returns the value without its format version. Raises RefusedJson if the version is unknown."""
    if type(raw) is not dict:
        raise RefusedJson(f"the {what} is not an object")
    if raw.get("format") != FORMAT:
        raise RefusedJson(
            f"the {what} has format {raw.get('format')!r}, this release reads format {FORMAT}"
        )
    return {name: value for name, value in raw.items() if name != "format"}


def _id(raw: Json, where: str) -> str:
    if not _ID.fullmatch(text(raw, where)):
        raise RefusedJson(f"{where} is not 32 hexadecimal digits")
    return str(raw)


def _producer(name: str, where: str) -> int:
    if not re.fullmatch(r"-?\d{1,19}", name, re.ASCII):
        raise RefusedJson(f"{where}: {name[:40]!r} is not a producer id")
    return integer(int(name), where)


def _verdict(name: str, where: str) -> Verdict:
    try:
        return Verdict(name)
    except ValueError:
        raise RefusedJson(f"{where}: {name[:40]!r} is not a verdict") from None


_read_row = value_of(SegmentRow, {"base_offset": natural, "file_version": natural})
_read_account = value_of(
    GroupAccount,
    {
        "digest": unsigned(_DIGEST_DIGITS),
        "batches": natural,
        "rebuilt": binary,
        "rebuilt_offset_sum": unsigned(_SUM_DIGITS),
        "records_by_verdict": mapping(_verdict, natural),
    },
)
_read_group = value_of(
    GroupResult,
    {
        "attempt": _id,
        "sources": several(_read_row),
        "outputs": several(_read_row),
        "account": _read_account,
    },
)
_read_keys = value_of(BuiltSidecar, {"attempt": _id, "row": _read_row})
_read_result = value_of(
    RemoteResult, {"lease": _id, "groups": several(_read_group), "keys": several(_read_keys)}
)
_read_plan = value_of(
    RemotePlan,
    {
        "lease": _id,
        "topic": text,
        "log_dir": text,
        "directory": text,
        "hash_key_check": text,
        "keeps_unkeyed": boolean,
        "producer_last_offsets": several(integer),
        "producer_marker_epochs": mapping(_producer, integer),
        "sealed_rows": several(_read_row),
    },
)
