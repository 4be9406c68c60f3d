"""Plans and results in JSON, and refusal of everything else."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.remote.plan import (
    BuiltSidecar,
    GroupResult,
    RemotePlan,
    RemoteResult,
    group_from_json,
    group_json,
)
from cleaner.remote.strict_json import RefusedJson
from cleaner.rules.retain import Verdict
from cleaner.rules.step import GroupAccount
from storage.formats.manifest import SegmentRow

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NATURAL = st.integers(0, (1 << 63) - 1)
HEX = st.text("0123456789abcdef", min_size=32, max_size=32)


def builds(kind: type[Any], **special: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = [field.name for field in dataclasses.fields(kind)]
    return st.builds(kind, **{name: special.get(name, INT64) for name in names})


ROWS = builds(SegmentRow, base_offset=NATURAL, file_version=NATURAL)
PLANS = builds(
    RemotePlan,
    **dict.fromkeys(("topic", "log_dir", "directory", "hash_key_check"), st.text()),
    lease=HEX,
    keeps_unkeyed=st.booleans(),
    producer_last_offsets=st.lists(INT64, max_size=3).map(tuple),
    producer_marker_epochs=st.dictionaries(INT64, INT64, max_size=3),
    sealed_rows=st.lists(ROWS, max_size=3).map(tuple),
)
ACCOUNTS = builds(
    GroupAccount,
    digest=st.integers(0, (1 << 128) - 1),
    batches=NATURAL,
    rebuilt=st.binary(),
    rebuilt_offset_sum=st.integers(0, (1 << 64) - 1),
    records_by_verdict=st.dictionaries(st.sampled_from(Verdict), NATURAL),
)
GROUPS = builds(
    GroupResult,
    attempt=HEX,
    sources=st.lists(ROWS, min_size=1, max_size=2).map(tuple),
    outputs=st.lists(ROWS, min_size=1, max_size=2).map(tuple),
    account=ACCOUNTS,
)
MADE = builds(BuiltSidecar, attempt=HEX, row=ROWS)
RESULTS = builds(
    RemoteResult,
    lease=HEX,
    groups=st.lists(GROUPS, max_size=2).map(tuple),
    keys=st.lists(MADE, max_size=2).map(tuple),
)


@given(PLANS)
def test_a_plan_comes_back_as_it_was(plan: RemotePlan) -> None:
    assert RemotePlan.from_json(plan.to_json()) == plan


@given(RESULTS)
def test_a_result_comes_back_as_it_was(result: RemoteResult) -> None:
    assert RemoteResult.from_json(result.to_json()) == result
    for group in result.groups:
        assert group_from_json(group_json(group)) == group


ROW = SegmentRow(base_offset=0, file_version=1, end_offset=2, size=100)
ACCOUNT = GroupAccount(
    digest=1,
    batches=1,
    rebuilt=b"\0",
    rebuilt_records=0,
    rebuilt_offset_sum=0,
    copied_tombstones=0,
    copied_horizon_ms_min=-1,
    records_read=1,
    records_by_verdict={Verdict.KEPT_LATEST: 1},
    marked=0,
)
RESULT = RemoteResult(
    lease="1" * 32,
    end_offset=2,
    groups=(GroupResult(attempt="a" * 32, sources=(ROW,), outputs=(ROW,), account=ACCOUNT),),
)


def changed(change: Callable[[Any], Any]) -> str:
    raw = json.loads(RESULT.to_json())
    change(raw)
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: raw.update(format=2), "format 2, this release reads format 1"),
        (lambda raw: raw.pop("format"), "format None"),
        (lambda raw: raw.pop("end_offset"), "lacks or should not have end_offset"),
        (lambda raw: raw.update(path="/etc/passwd"), "lacks or should not have path"),
        (lambda raw: raw.update(end_offset="2"), "result.end_offset is not a whole number"),
        (lambda raw: raw.update(end_offset=True), "result.end_offset is not a whole number"),
        (lambda raw: raw.update(end_offset=1 << 63), "result.end_offset is not a whole number"),
        (lambda raw: raw.update(groups={}), "result.groups is not a list"),
        (lambda raw: raw["groups"][0].update(attempt="../../x"), r"attempt is not 32 hexadecimal"),
        (lambda raw: raw["groups"][0].update(attempt="a" * 32 + "\n"), "attempt is not 32"),
        (lambda raw: raw["groups"][0].update(outputs=[]), "a group has no outputs"),
        (lambda raw: raw["groups"][0]["sources"][0].update(base_offset=-1), "is negative"),
        (
            lambda raw: raw["groups"][0]["account"].update(digest="1"),
            "is not a hexadecimal number of length 32",
        ),
        (lambda raw: raw["groups"][0]["account"].update(rebuilt="%"), "rebuilt is not base64"),
        (
            lambda raw: raw["groups"][0]["account"].update(records_by_verdict={"kept": 1}),
            "'kept' is not a verdict",
        ),
    ],
)
def test_what_is_not_exactly_a_result_is_refused_and_says_where(
    change: Callable[[Any], Any], says: str
) -> None:
    with pytest.raises(RefusedJson, match=says):
        RemoteResult.from_json(changed(change))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedJson):
        RemoteResult.from_json(data)
    with pytest.raises(RefusedJson):
        RemotePlan.from_json(data)
