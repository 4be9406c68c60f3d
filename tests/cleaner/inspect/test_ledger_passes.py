"""The passes in a ledger: found by topic and offset, and what they can say of a key that is gone."""

from __future__ import annotations

from typing import Any

from cleaner.inspect.ledger_passes import (
    LedgerPass,
    covering,
    departures,
    passes_of,
    wanted_bytes,
)
from storage.formats.ledger_entry import Entry
from tests.harness.compacted_log import CompactedLog
from tests.harness.ledgers import CertifiedLog, entries_of

Json = dict[str, Any]
TOPIC_ID = "00000000-0000-0000-0000-000000000001"


def group(
    number: int, pass_id: str, offsets: tuple[int, int], *, dropped: int = 1, topic: str = "orders"
) -> Entry:
    start, end = offsets
    members = {
        "pass": pass_id,
        "topic": topic,
        "topic_id": TOPIC_ID,
        "partition": 0,
        "sources": [{"base_offset": start, "version": 1, "end_offset": end}],
        "outputs": [],
        "verdicts": {"dropped_superseded": dropped, "kept_latest": 3},
    }
    return Entry(number, "", 1000 * number, "group", members, "")


def end(
    number: int,
    pass_id: str,
    offsets: tuple[int, int],
    *,
    swapped: list[int],
    topic: str = "orders",
) -> Entry:
    members = {
        "pass": pass_id,
        "topic": topic,
        "topic_id": TOPIC_ID,
        "partition": 0,
        "result": "completed",
        "start_offset": offsets[0],
        "end_offset": offsets[1],
        "swapped": swapped,
        "not_swapped": [],
    }
    return Entry(number, "", 1000 * number, "pass", members, "")


TWO = [
    group(1, "a", (0, 10)),
    end(2, "a", (0, 10), swapped=[1]),
    group(3, "other", (0, 5), topic="other"),
    group(4, "b", (0, 10)),
    group(5, "b", (10, 20), dropped=0),
    end(6, "b", (10, 20), swapped=[4, 5]),
]


def orders(entries: list[Entry]) -> list[LedgerPass]:
    return passes_of(entries, topic="orders")


def test_passes_are_put_together_from_their_entries() -> None:
    first, second = orders(TWO)

    assert (first.pass_id, first.result, first.ended_ms) == ("a", "completed", 2000)
    assert [each.outcome for each in second.groups] == ["swapped", "swapped"]
    assert [(each.start_offset, each.end_offset, each.dropped) for each in second.groups] == [
        (0, 10, 1),
        (10, 20, 0),
    ]
    (running,) = passes_of(TWO, topic="other")
    assert (running.result, running.ended_ms, running.groups[0].outcome) == (
        "running",
        None,
        "unknown",
    )
    assert [each.pass_id for each in passes_of(TWO, limit=1)] == ["b"]
    assert passes_of(TWO, partition=1) == []
    assert len(passes_of(TWO, topic_id=TOPIC_ID)) == 3


def test_a_group_that_was_not_swapped_covers_nothing() -> None:
    entries = [group(1, "a", (0, 10)), end(2, "a", (0, 10), swapped=[])]
    entries[1].members["not_swapped"] = [1]

    assert covering(orders(entries), 3) == []


def undone(number: int, *, sources: list[Json], outputs: list[Json], partition: int = 0) -> Entry:
    members = {
        "topic": "orders",
        "topic_id": TOPIC_ID,
        "partition": partition,
        "number": 7,
        "sources": sources,
        "outputs": outputs,
    }
    return Entry(number, "", 1000 * number, "undone", members, "")


def test_a_group_that_was_undone_covers_nothing_and_has_removed_nothing() -> None:
    taken, kept = {"base_offset": 0, "version": 7}, {"base_offset": 0, "version": 3}
    entries = [
        group(1, "a", (0, 10)),
        end(2, "a", (0, 10), swapped=[1]),
        group(3, "b", (0, 10)),
        end(4, "b", (0, 10), swapped=[3]),
    ]
    entries[0].members["outputs"], entries[2].members["outputs"] = [kept], [taken]
    other = undone(5, sources=[kept], outputs=[taken], partition=1)
    assert [each.pass_id for each, _ in covering(orders([*entries, other]), 3)] == ["a", "b"]

    passes = orders([*entries, undone(5, sources=[kept], outputs=[taken])])

    assert [each.pass_id for each, _ in covering(passes, 3)] == ["a"]
    assert passes[1].groups[0].outcome == "undone"
    assert not passes[1].has_reached(3)
    assert "b" not in [
        text.split("pass ")[1][0] for text in departures(passes, 3, keeps_last_only=True)
    ]


def test_an_end_after_the_undo_changes_nothing_and_a_later_pass_over_the_same_segments_counts() -> (
    None
):
    """The groups have written nothing, because nothing is left of their sources."""
    source = {"base_offset": 0, "version": 1}
    passes = orders(
        [
            group(1, "a", (0, 10)),
            undone(2, sources=[source], outputs=[]),
            end(3, "a", (0, 10), swapped=[1]),
            group(4, "b", (0, 10)),
            end(5, "b", (0, 10), swapped=[4]),
        ]
    )

    assert [each.groups[0].outcome for each in passes] == ["undone", "swapped"]


def test_an_offset_is_covered_by_the_passes_that_rewrote_its_segment() -> None:
    assert [each.pass_id for each, _ in covering(orders(TWO), 9)] == ["a", "b"]
    assert [group.number for _, group in covering(orders(TWO), 10)] == [5]
    assert covering(orders(TWO), 20) == []


def said(last_offset: int | None, *, keeps_last_only: bool = True) -> str:
    return " ".join(departures(orders(TWO), last_offset, keeps_last_only=keeps_last_only))


def test_older_records_went_with_the_pass_that_reached_the_current_one() -> None:
    text = said(15)

    assert "gone at the latest with pass b, 1970-01-01 00:00:06 UTC" in text
    assert "the first one that reached offset 15" in text
    assert "some may have gone before, with pass a" in text
    assert "some may have gone before" not in said(5)


def test_where_older_values_may_stay_only_the_span_is_said() -> None:
    assert said(15, keeps_last_only=False) == (
        "older records of it that cleaning removed went with one of 2 passes from a, 1970-01-01 00:00:02"
        " UTC, to b, 1970-01-01 00:00:06 UTC, or before the ledger began"
    )


def test_of_a_key_without_records_nothing_but_the_span_is_known() -> None:
    assert said(None).startswith(
        "if cleaning removed records of it, that was with one of 2 passes from a"
    )
    assert "it stores no keys" in said(None)


def test_a_log_that_lost_nothing_has_nothing_to_say() -> None:
    passes = orders([group(1, "a", (0, 10), dropped=0), end(2, "a", (0, 10), swapped=[1])])

    assert list(departures(passes, 5, keeps_last_only=True)) == []
    assert list(departures([], None, keeps_last_only=True)) == []


def test_the_words_of_a_ledger_are_those_that_passes_write() -> None:
    log: CompactedLog = CertifiedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append_segment((b"a", b"2"))
    report = log.clean()

    (each,) = passes_of(entries_of(log.fs), topic="orders", topic_id=TOPIC_ID, partition=0)

    assert (each.pass_id, each.result) == (report.pass_id, "completed")
    assert [found.dropped for _, found in covering([each], 0)] == [1]
    (sentence,) = departures([each], 2, keeps_last_only=True)
    assert f"at the latest with pass {report.pass_id}" in sentence


def test_only_lines_about_a_topic_are_read() -> None:
    assert wanted_bytes(None, None) == b""
    assert wanted_bytes('a"b', None) == b'"topic":"a\\"b"'
    assert wanted_bytes("orders", TOPIC_ID) == TOPIC_ID.encode()
