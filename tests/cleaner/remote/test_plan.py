"""Plans and results in JSON, and refusal of everything else."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.remote import plan as plans
from cleaner.remote.plan import (
    BuiltSidecar,
    GroupResult,
    RemotePlan,
    RemoteResult,
    group_from_json,
    group_json,
)
from cleaner.remote.strict_json import RefusedJson
from cleaner.rules.record_verdict import Verdict
from cleaner.rules.step import GroupAccount
from protocol.wire.numbers import Offset
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


@given(PLANS)
def test_a_pickled_plan_comes_back_as_it_was(plan: RemotePlan) -> None:
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_an_executor_of_another_release_refuses_a_pickled_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pickled = pickle.dumps(PLAN)
    monkeypatch.setattr(plans, "FORMAT", 2)
    with pytest.raises(RefusedJson, match="the plan has format 4, this release reads format 2"):
        pickle.loads(pickled)


def test_a_plan_of_a_release_without_holds_is_refused_for_its_format() -> None:
    raw = json.loads(PLAN.to_json())
    del raw["hold_offset"]
    with pytest.raises(RefusedJson, match="the plan has format 1, this release reads format 4"):
        RemotePlan.from_json(json.dumps({**raw, "format": 1}))


@given(RESULTS)
def test_a_result_comes_back_as_it_was(result: RemoteResult) -> None:
    assert RemoteResult.from_json(result.to_json()) == result
    for group in result.groups:
        assert group_from_json(group_json(group)) == group


ROW = SegmentRow(base_offset=Offset(0), file_version=1, end_offset=Offset(2), size=100)
ACCOUNT = GroupAccount(
    digest=1,
    batches=1,
    rebuilt=b"\0",
    rebuilt_records=0,
    rebuilt_offset_sum=0,
    copied_tombstones=0,
    copied_tombstone_bytes=0,
    copied_horizon_ms_min=-1,
    copied_tombstone_horizon_ms_max=-1,
    records_read=1,
    records_by_verdict={Verdict.KEPT_LATEST: 1},
    marked=0,
    expired_offset_max=-1,
)
RESULT = RemoteResult(
    lease="1" * 32,
    end_offset=Offset(2),
    groups=(GroupResult(attempt="a" * 32, sources=(ROW,), outputs=(ROW,), account=ACCOUNT),),
)


PLAN = RemotePlan(
    lease="1" * 32,
    topic="t",
    partition=0,
    log_dir="/d",
    directory="t.x/0",
    hash_key_check="00",
    generation=1,
    log_start_offset=Offset(0),
    clean_offset=Offset(0),
    start_offset=Offset(0),
    end_offset=Offset(2),
    now_ms=1,
    stamp_ms=1,
    hold_offset=Offset(5),
    delete_retention_ms=1,
    segment_bytes=1,
    segment_index_bytes=1,
    index_interval_bytes=1,
    keeps_unkeyed=False,
    decompressed_bytes_max=1,
    producer_last_offsets=(Offset(1),),
    producer_marker_epochs={1: 2},
    sealed_rows=(ROW,),
)


def changed(change: Callable[[Any], Any]) -> str:
    raw = json.loads(RESULT.to_json())
    change(raw)
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: raw.update(format=1), "format 1, this release reads format 4"),
        (lambda raw: raw.pop("format"), "format None"),
        (lambda raw: raw.pop("end_offset"), "missing required field `end_offset`"),
        (lambda raw: raw.update(path="/etc/passwd"), "unknown field `path`"),
        (lambda raw: raw.update(end_offset="2"), r"Expected `int`, got `str` - at `\$.end_offset`"),
        (
            lambda raw: raw.update(end_offset=True),
            r"Expected `int`, got `bool` - at `\$.end_offset`",
        ),
        (
            lambda raw: raw.update(end_offset=2.0),
            r"Expected `int`, got `float` - at `\$.end_offset`",
        ),
        (lambda raw: raw.update(end_offset=1 << 63), r"9223372036854775807 - at `\$.end_offset`"),
        (lambda raw: raw.update(end_offset=10**30), r"9223372036854775807 - at `\$.end_offset`"),
        (lambda raw: raw.update(end_offset=None), r"got `null` - at `\$.end_offset`"),
        (lambda raw: raw.update(groups={}), r"Expected `array`, got `object` - at `\$.groups`"),
        (lambda raw: raw["groups"][0].update(attempt="../../x"), r"at `\$.groups\[0\].attempt`"),
        (lambda raw: raw["groups"][0].update(attempt="a" * 32 + "\n"), r"\{32\}.*attempt`"),
        (lambda raw: raw["groups"][0].update(outputs=[]), r">= 1 - at `\$.groups\[0\].outputs`"),
        (lambda raw: raw["groups"][0].update(sources=[]), r">= 1 - at `\$.groups\[0\].sources`"),
        (
            lambda raw: raw["groups"][0]["sources"][0].update(base_offset=-1),
            r"Expected `int` >= 0 - at `\$.groups\[0\].sources\[0\].base_offset`",
        ),
        (
            lambda raw: raw["groups"][0]["sources"][0].pop("size"),
            r"missing required field `size` - at `\$.groups\[0\].sources\[0\]`",
        ),
        (lambda raw: raw["groups"][0]["account"].update(digest="1"), r"\{32\}.*account.digest`"),
        (
            lambda raw: raw["groups"][0]["account"].update(rebuilt="%"),
            r"Invalid base64 encoded string - at `\$.groups\[0\].account.rebuilt`",
        ),
        (lambda raw: raw["groups"][0]["account"].update(rebuilt="AA\n=="), "Invalid base64"),
        (lambda raw: raw["groups"][0]["account"].update(rebuilt="-_-_"), "Invalid base64"),
        (
            lambda raw: raw["groups"][0]["account"].update(records_by_verdict={"kept": 1}),
            "Invalid enum value 'kept' - at `key` in",
        ),
    ],
)
def test_what_is_not_exactly_a_result_is_refused_and_says_where(
    change: Callable[[Any], Any], says: str
) -> None:
    with pytest.raises(RefusedJson, match=says):
        RemoteResult.from_json(changed(change))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b'{"\xff": 1}',
        b'{"format": 1, "a": ' + b"[" * 100_000, b'{"format": 1} {}', b'{"format": NaN}',
        b'{"format": ' + b"9" * 10_000 + b"}", b'{"format": true}', b'{"format": 1, "lease": "\\ud800"}',
    ],
    ids=range(14),
)  # fmt: skip
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedJson):
        RemoteResult.from_json(data)
    with pytest.raises(RefusedJson):
        RemotePlan.from_json(data)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: raw["producer_marker_epochs"].update({"x": 1}), r"producer_marker_epochs`"),
        (lambda raw: raw["producer_marker_epochs"].update({"1.0": 1}), r"producer_marker_epochs`"),
        (
            lambda raw: raw["producer_marker_epochs"].update({str(1 << 63): 1}),
            r"producer_marker_epochs`",
        ),
        (lambda raw: raw.update(producer_last_offsets=[1, "2"]), r"producer_last_offsets\[1\]`"),
        (lambda raw: raw.update(keeps_unkeyed=1), r"Expected `bool`, got `int`"),
        (lambda raw: raw.update(topic=None), r"Expected `str`, got `null` - at `\$.topic`"),
    ],
)
def test_what_is_not_exactly_a_plan_is_refused_and_says_where(
    change: Callable[[Any], Any], says: str
) -> None:
    raw = json.loads(PLAN.to_json())
    change(raw)
    with pytest.raises(RefusedJson, match=says):
        RemotePlan.from_json(json.dumps(raw))
