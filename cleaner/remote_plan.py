"""A cleaning pass that others execute: its plan, and what they answer, as values with JSON both ways.

    plan     the broker's: which segments, between which offsets, by which rules; where they are
    result   the executor's: for each group that it rewrote the sources, the outputs and the account

The plan names the log's directory below a directory of `log.dirs`, so an executor that has this one
elsewhere says so with `moved_to`. The hash key is not in it: it lies in `log_dir`, for those who may
read it. A result names no file: an attempt's outputs lie in `<lease folder>/<attempt>`, by the base
offsets and file versions of their rows, so no path ever comes from outside. Attempts of the same task
never meet: each has a folder of its own, and the result says whose outputs count.

Both carry a format version; whatever is not exactly such a value is refused (`cleaner/strict_json.py`).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cleaner.retain import Verdict
from cleaner.step import GroupAccount
from cleaner.strict_json import (
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
from storage.manifest import SegmentRow
from storage.paths import LEASES, join

FORMAT = 1
"""Raised when an older reader would be wrong."""

_ID = re.compile(r"[0-9a-f]{32}")
_DIGEST_DIGITS = 32
_SUM_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePlan:
    """What a pass is going to do, for who has the files but not the broker."""

    lease: str
    """The lease's id, 32 hexadecimal digits, and the name of its folder in `<log_dir>/leases`."""
    topic: str
    partition: int
    log_dir: str
    """The entry of `log.dirs` that has the log; `hash.key` lies there."""
    directory: str
    """The log's, below `log_dir`: `<topic>.<topic id>/<partition>`."""
    hash_key_check: str
    """What a key sidecar's header says of the hash key, in hexadecimal digits."""
    generation: int
    log_start_offset: int
    clean_offset: int
    start_offset: int
    """The first dirty offset."""
    end_offset: int
    """The first uncleanable offset."""
    now_ms: int
    """Up to here delete horizons have passed."""
    stamp_ms: int
    """From here new delete horizons count."""
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    keeps_unkeyed: bool
    decompressed_bytes_max: int
    """The most that one batch's records may inflate to."""
    producer_last_offsets: tuple[int, ...]
    producer_marker_epochs: Mapping[int, int]
    sealed_rows: tuple[SegmentRow, ...] = field(repr=False)
    """All sealed segments of the log, in offset order."""

    @property
    def log_directory(self) -> str:
        """Where the segments are."""
        return join(self.log_dir, self.directory)

    @property
    def folder(self) -> str:
        """The lease's folder: all that an executor writes lies in it."""
        return join(join(self.log_dir, LEASES), self.lease)

    def moved_to(self, log_dir: str) -> RemotePlan:
        """The plan for who has the log directory at another path."""
        return replace(self, log_dir=log_dir)

    def to_json(self) -> str:
        """The plan as text; `from_json` is its inverse."""
        values = dataclasses.asdict(self)
        values["producer_marker_epochs"] = {
            str(producer): epoch for producer, epoch in self.producer_marker_epochs.items()
        }
        return json.dumps({"format": FORMAT, **values})

    @staticmethod
    def from_json(data: str | bytes) -> RemotePlan:
        """Understand a plan. Raises RefusedJson."""
        plan: RemotePlan = _read_plan(_unversioned(parsed(data), "plan"), "plan")
        return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """What became of one group of neighbouring segments."""

    attempt: str
    """Whose folder has the outputs: 32 hexadecimal digits."""
    sources: tuple[SegmentRow, ...]
    """Rows of the plan, side by side."""
    outputs: tuple[SegmentRow, ...]
    """What stands in their place; file versions count within the attempt."""
    account: GroupAccount
    """What must remain of the sources, as the filter told it."""

    def __post_init__(self) -> None:
        assert self.sources, "a group has no sources"
        assert self.outputs, "a group has no outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeKeys:
    """A key sidecar that an executor has made of a segment that had none."""

    attempt: str
    """Whose folder has it."""
    row: SegmentRow
    """The segment, of the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteResult:
    """What became of a plan."""

    lease: str
    end_offset: int
    """Where the pass ended: below the plan's end where a transaction is not decided."""
    groups: tuple[GroupResult, ...]
    """In offset order; what is in none stays as it is."""
    keys: tuple[MadeKeys, ...] = ()
    """The broker takes them, so that it need not read these segments."""

    def to_json(self) -> str:
        """The result as text; `from_json` is its inverse."""
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
        """Understand a result. Raises RefusedJson."""
        result: RemoteResult = _read_result(_unversioned(parsed(data), "result"), "result")
        return result


def group_json(group: GroupResult) -> str:
    """A group's result as text, for its way from an executor to the one that collects them."""
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
    """Understand a group's result. Raises RefusedJson."""
    group: GroupResult = _read_group(parsed(data), "group")
    return group


def _unversioned(raw: Json, what: str) -> dict[str, Any]:
    """The value without its format version, which must be ours."""
    if type(raw) is not dict:
        raise RefusedJson(f"the {what} is not an object")
    if raw.get("format") != FORMAT:
        raise RefusedJson(
            f"the {what} has format {raw.get('format')!r}, and this release knows {FORMAT}"
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
        raise RefusedJson(f"{where}: {name[:40]!r} is no verdict") from None


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
_read_keys = value_of(MadeKeys, {"attempt": _id, "row": _read_row})
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
