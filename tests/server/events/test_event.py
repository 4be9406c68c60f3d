"""The events, and the schema that describes them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.events.event import (
    Aborted,
    AnyEvent,
    Cancelled,
    Failed,
    Stalled,
    Started,
    completed,
    is_running,
    key_of,
    log_of,
    schema,
)
from server.events.writer import EventTooLarge, batch_of, corrections
from storage.formats.topic_partition import TopicPartition
from tests.cleaner.rules.test_report import REPORT
from tests.harness.json_schema import faults

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "compaction-event.schema.json"
EVENTS: list[AnyEvent] = [
    Started(topic="orders", partition=3, broker=1, time_ms=5),
    Stalled(
        topic="orders", partition=3, broker=1, time_ms=5, stalled_seconds=300.5, phase="recopy"
    ),
    completed(REPORT, seconds=2.5, broker=1, time_ms=5),
    Aborted(topic="orders", partition=3, broker=1, time_ms=5, seconds=0, why="paused"),
    Cancelled(topic="orders", partition=3, broker=1, time_ms=5, seconds=1, why="it was cancelled"),
    Failed(
        topic="orders",
        partition=3,
        broker=1,
        time_ms=5,
        seconds=1,
        why="rotten",
        kind="corrupt_batch",
        failures=2,
        rest_seconds=60,
    ),
]
ORDERS = TopicPartition("orders", 3)


def test_the_schema_of_the_documentation_is_that_of_the_code() -> None:
    """Else write `json.dumps(schema(), indent=2)` there, and say in the changelog what is new."""
    assert json.loads(PAGE.read_text("utf-8")) == schema()


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_is_as_the_schema_says(event: AnyEvent) -> None:
    members = json.loads(msgspec.json.encode(event))
    described = json.loads(PAGE.read_text("utf-8"))

    assert faults(members, described, is_closed=True) == []
    assert (members["format"], members["topic"], members["partition"]) == (1, "orders", 3)
    for name in members:
        without = {other: value for other, value in members.items() if other != name}
        assert faults(without, described), f"{name} may be missing"


def test_only_the_start_and_a_stall_leave_a_pass_that_runs() -> None:
    assert [is_running(msgspec.json.encode(event)) for event in EVENTS] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    assert not is_running(b"not JSON")
    assert not is_running(b'{"event": "of a later release"}')
    assert not is_running(b"[]")
    assert not is_running(b'{"event": "\xff"}')


@pytest.mark.parametrize("topic", ["orders", "a-1", "a.b_c-"])
def test_a_key_names_its_log(topic: str) -> None:
    assert log_of(key_of(TopicPartition(topic, 12))) == TopicPartition(topic, 12)


@pytest.mark.parametrize(
    "key", [b"", b"orders", b"orders-", b"orders-x", b"\xff", b"t-" + b"1" * 5000]
)
def test_another_key_names_no_log(key: bytes) -> None:
    assert log_of(key) is None


def test_a_batch_beyond_the_limit_of_the_topic_is_refused() -> None:
    batch = batch_of([(ORDERS, b"{}")], 5, bytes_max=1000)

    with pytest.raises(EventTooLarge):
        batch_of([(ORDERS, b"{}")], 5, bytes_max=len(batch) - 1)


LOGS = st.integers(0, 5).map(lambda number: TopicPartition("t", number))


@given(
    last=st.dictionaries(LOGS, st.booleans()),
    there=st.frozensets(LOGS),
    running=st.frozensets(LOGS),
)
def test_after_the_corrections_the_last_event_of_each_log_is_true(
    last: dict[TopicPartition, bool],
    there: frozenset[TopicPartition],
    running: frozenset[TopicPartition],
) -> None:
    after: dict[TopicPartition, bool | None] = dict(last)
    for log, has_end in corrections(last, there.__contains__, running.__contains__):
        assert after[log] is not None, "once each"
        after[log] = False if has_end else None

    for log, is_open in after.items():
        assert (is_open is not None) == (log in there)
        assert not is_open or log in running
