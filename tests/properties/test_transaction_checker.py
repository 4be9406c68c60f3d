"""The checker of transactions lets right histories be, and refuses each kind of a wrong one.

The examples are as small as they can be; the property breaks histories of a model in one place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.transaction_checker import Facts, Kind, violations
from tests.harness.transaction_history import (
    GroupPlace,
    History,
    Outcome,
    Place,
    Seen,
    Sent,
    Snapshot,
    Transaction,
    read_transactions,
)
from tests.harness.transaction_model import good_history

OUT: Place = ("out", 0)
OTHER: Place = ("out", 1)
INPUT: Place = ("in", 0)
TABLE: Place = ("table", 0)


def transaction(
    name: str, *sent: Sent, outcome: Outcome = Outcome.COMMITTED, offset: int | None = None
) -> Transaction:
    """Of the producer `p`; of the group `g` where it commits an offset; its name is its rank."""
    offsets = {} if offset is None else {INPUT: offset}
    group = None if offset is None else "g"
    return Transaction(name, "p", int(name), group, sent, offsets, outcome)


def snapshot(
    records: Mapping[Place, Sequence[Seen]], ends: Mapping[Place, int] | None = None
) -> Snapshot:
    return Snapshot("reader", ends or dict.fromkeys(records, 10), records)


def history(
    transactions: Sequence[Transaction],
    *snapshots: Snapshot,
    offsets: Sequence[Mapping[GroupPlace, int]] = (),
) -> History:
    by_name = {each.name: each for each in transactions}
    return History(by_name, snapshots, offsets, compacted=frozenset({"table"}))


def kinds(of: History) -> set[Kind]:
    return {each.kind for each in violations(of)}


ONE = transaction("1", Sent(OUT, "k", offset=0), Sent(OUT, "k", offset=1))
UNKNOWN = replace(ONE, outcome=Outcome.UNKNOWN)
ABORTED = replace(ONE, outcome=Outcome.ABORTED)
FIRST, SECOND = Seen(0, ("1", 0), "k"), Seen(1, ("1", 1), "k")


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(history([ONE], snapshot({OUT: [FIRST, SECOND]})), id="all-is-there"),
        pytest.param(history([UNKNOWN], snapshot({OUT: [FIRST, SECOND]})), id="unknown-and-all"),
        pytest.param(history([UNKNOWN], snapshot({OUT: []})), id="unknown-and-nothing"),
        pytest.param(history([ABORTED], snapshot({OUT: []})), id="aborted-and-nothing"),
        pytest.param(
            history([ONE], snapshot({OUT: []}, {OUT: 0}), snapshot({OUT: [FIRST, SECOND]})),
            id="not-yet-stable",
        ),
        pytest.param(
            history([ONE], snapshot({OUT: [FIRST]}, {OUT: 1}), snapshot({OUT: [FIRST, SECOND]})),
            id="an-end-that-another-transaction-holds",
        ),
    ],
)
def test_what_may_be_is_let_be(right: History) -> None:
    assert violations(right) == []


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        pytest.param(history([ONE], snapshot({OUT: []})), Kind.LOST_WRITE, id="committed-and-gone"),
        pytest.param(
            history([ONE], snapshot({OUT: [FIRST, SECOND]}), snapshot({OUT: [FIRST]})),
            Kind.LOST_WRITE,
            id="seen-and-gone",
        ),
        pytest.param(
            history([ONE], snapshot({OUT: [FIRST, SECOND, replace(SECOND, offset=2)]})),
            Kind.DUPLICATE,
            id="one-record-at-two-offsets",
        ),
        pytest.param(
            history(
                [
                    transaction("1", Sent(OUT, "k", (INPUT, 0), 0), offset=1),
                    transaction("2", Sent(OUT, "k", (INPUT, 0), 2), offset=1),
                ],
                snapshot({OUT: [FIRST, Seen(2, ("2", 0), "k")]}),
            ),
            Kind.DUPLICATE,
            id="one-source-in-two-transactions",
        ),
        pytest.param(
            history([ONE], snapshot({OUT: [replace(SECOND, offset=0), replace(FIRST, offset=1)]})),
            Kind.REORDERED,
            id="within-a-transaction",
        ),
        pytest.param(
            history(
                [transaction("1", Sent(OUT, "k")), transaction("2", Sent(OUT, "k"))],
                snapshot({OUT: [Seen(0, ("2", 0), "k"), Seen(1, ("1", 0), "k")]}),
            ),
            Kind.REORDERED,
            id="over-transactions",
        ),
        pytest.param(
            history([ONE], snapshot({OUT: [SECOND, FIRST]})), Kind.REORDERED, id="offsets-go-down"
        ),
        pytest.param(
            history([ONE], snapshot({OUT: [FIRST, replace(SECOND, offset=5)]})),
            Kind.MOVED,
            id="at-another-offset-than-acknowledged",
        ),
        pytest.param(
            history([ONE], snapshot({OUT: [FIRST, SECOND, Seen(2, ("9", 0), "k")]})),
            Kind.PHANTOM,
            id="of-no-transaction",
        ),
        pytest.param(
            history([ABORTED], snapshot({OUT: [FIRST, SECOND]})), Kind.ABORTED_READ, id="aborted"
        ),
        pytest.param(
            history(
                [transaction("1", Sent(OUT, "k", (INPUT, 3), 0), offset=4)],
                snapshot({OUT: [FIRST], INPUT: []}),
                offsets=[{("g", INPUT): 4}],
            ),
            Kind.ABORTED_READ,
            id="made-of-what-is-not-committed",
        ),
        pytest.param(
            history([UNKNOWN], snapshot({OUT: [FIRST]})),
            Kind.INTERMEDIATE_READ,
            id="unknown-and-a-part",
        ),
        pytest.param(
            history(
                [transaction("1", Sent(OUT, "k"), Sent(OTHER, "k"), outcome=Outcome.UNKNOWN)],
                snapshot({OUT: [FIRST], OTHER: []}),
            ),
            Kind.INTERMEDIATE_READ,
            id="in-one-of-two-partitions-for-ever",
        ),
        pytest.param(
            history([ONE], snapshot({OUT: [FIRST]}, {OUT: 2}), snapshot({OUT: [FIRST, SECOND]})),
            Kind.INTERMEDIATE_READ,
            id="a-part-below-an-end",
        ),
        pytest.param(
            history(
                [transaction("1", Sent(OUT, "k", (INPUT, 0)), outcome=Outcome.UNKNOWN, offset=1)],
                snapshot({OUT: []}),
                offsets=[{("g", INPUT): 1}],
            ),
            Kind.INTERMEDIATE_READ,
            id="its-offsets-without-its-records",
        ),
        pytest.param(
            history([ONE], snapshot({OUT: []}, {OUT: 2}), snapshot({OUT: [FIRST, SECOND]})),
            Kind.LATE_WRITE,
            id="below-an-end-that-was-served",
        ),
        pytest.param(
            history(
                [ONE],
                snapshot({OUT: [FIRST, SECOND]}, {OUT: 9}),
                snapshot({OUT: [FIRST, SECOND]}, {OUT: 8}),
            ),
            Kind.END_WENT_BACK,
            id="last-stable-offset",
        ),
        pytest.param(
            history(
                [transaction("1", offset=1), transaction("2", offset=2)],
                offsets=[{("g", INPUT): 2}, {("g", INPUT): 1}],
            ),
            Kind.OFFSET_WENT_BACK,
            id="a-groups-offset",
        ),
        pytest.param(
            history(
                [transaction("1", Sent(OUT, "k", (INPUT, 0), 0), offset=1)],
                snapshot({OUT: [FIRST], INPUT: [FIRST]}),
                offsets=[{}],
            ),
            Kind.OFFSET_WENT_BACK,
            id="records-without-their-offsets",
        ),
        pytest.param(
            history(
                [transaction("1", offset=1, outcome=Outcome.ABORTED)], offsets=[{("g", INPUT): 1}]
            ),
            Kind.OFFSET_OF_NOBODY,
            id="offsets-of-an-aborted-transaction",
        ),
    ],
)
def test_what_may_not_be_is_named(wrong: History, kind: Kind) -> None:
    assert kind in kinds(wrong)


def test_a_compacted_topic_may_lose_what_a_later_record_supersedes_and_nothing_else() -> None:
    sent = (Sent(TABLE, "a", offset=0), Sent(TABLE, "b", offset=1), Sent(TABLE, "a", offset=2))
    known = [transaction("1", *sent)]
    later, other = Seen(2, ("1", 2), "a"), Seen(1, ("1", 1), "b")
    assert kinds(history(known, snapshot({TABLE: [other, later]}))) == set()
    assert kinds(history(known, snapshot({TABLE: [later]}))) == {Kind.LOST_WRITE}
    assert kinds(history(known, snapshot({TABLE: [Seen(0, ("1", 0), "a"), other]}))) == {
        Kind.LOST_WRITE
    }


def test_a_program_that_is_killed_leaves_what_it_had_said() -> None:
    said = """\
begin p.1 1 g
send out 0 k in:0:7
offsets in 0 8
at 3
commit
committed
begin p.2 2 g
send out 0 k in:0:8
at -1
commit
begin p.3 3 -
send out 1 k -
com"""
    first, second, third = read_transactions("p", said.splitlines(keepends=True))
    assert first == Transaction(
        "p.1", "p", 1, "g", (Sent(OUT, "k", (("in", 0), 7), 3),), {INPUT: 8}, Outcome.COMMITTED
    )
    assert (second.outcome, second.sent[0].offset) == (Outcome.UNKNOWN, None)
    assert (third.group, third.outcome, third.sent[0].source) == (None, Outcome.ABORTED, None)


def test_where_a_program_that_hung_stood_is_none_of_what_it_said() -> None:
    said = """2026-11-22 01:16:22
Full thread dump OpenJDK 64-Bit Server VM:
"main" #1 prio=5
\tat java.lang.Thread.sleep(java.base@17)
begin p.1 1 g
\tat java.lang.Object.wait(java.base@17)
commit
"""
    (only,) = read_transactions("p", said.splitlines(keepends=True))

    assert only.outcome == Outcome.UNKNOWN


# ---------------------------------------------------------------- histories of a model, broken


@given(st.integers(0, 2**32))
def test_histories_of_a_right_broker_are_let_be(seed: int) -> None:
    assert violations(good_history(seed)) == []


Records = dict[Place, list[Seen]]


def drop_a_record(records: Records, choices: random.Random, _: History) -> None:
    """A table's last record of a key, or any other topic's."""
    place, seen = choose(records, choices)
    if place[0] == "table":
        last = max(each.offset for each in records[place] if each.key == seen.key)
        records[place] = [each for each in records[place] if each.offset != last]
    else:
        records[place].remove(seen)


def repeat_a_record(records: Records, choices: random.Random, _: History) -> None:
    place, seen = choose(records, choices)
    records[place].append(replace(seen, offset=records[place][-1].offset + 1))


def swap_neighbours(records: Records, choices: random.Random, _: History) -> None:
    found = choices.choice([each for each in records.values() if len(each) > 1])
    at = choices.randrange(len(found) - 1)
    found[at : at + 2] = reversed(found[at : at + 2])


def show_an_aborted_record(records: Records, choices: random.Random, known: History) -> None:
    facts = Facts(known)
    outcomes = known.transactions
    record_id, sent = choices.choice(
        [
            (record_id, sent)
            for record_id, sent in facts.sent.items()
            if outcomes[record_id[0]].outcome is Outcome.ABORTED
        ]
    )
    found = records.setdefault(sent.place, [])
    found.append(Seen(found[-1].offset + 1 if found else 0, record_id, sent.key))


def choose(records: Mapping[Place, Sequence[Seen]], choices: random.Random) -> tuple[Place, Seen]:
    place = choices.choice(sorted(place for place, found in records.items() if found))
    return place, choices.choice(records[place])


Breaker = Callable[[Records, random.Random, History], None]
BREAKERS: Mapping[Breaker, set[Kind]] = {
    drop_a_record: {Kind.LOST_WRITE, Kind.INTERMEDIATE_READ},
    repeat_a_record: {Kind.DUPLICATE},
    swap_neighbours: {Kind.REORDERED},
    show_an_aborted_record: {Kind.ABORTED_READ},
}


@pytest.mark.parametrize("breaker", BREAKERS)
@given(seed=st.integers(0, 2**32))
def test_a_history_broken_in_one_record_is_refused(breaker: Breaker, seed: int) -> None:
    good = good_history(seed)
    last = good.snapshots[-1]
    records = {place: list(found) for place, found in last.records.items()}
    try:
        breaker(records, random.Random(seed), good)
    except IndexError:
        return  # there is nothing of the kind in this history
    broken = replace(good, snapshots=[*good.snapshots[:-1], replace(last, records=records)])
    assert BREAKERS[breaker] & kinds(broken)


@given(seed=st.integers(0, 2**32))
def test_an_offset_that_is_changed_is_refused(seed: int) -> None:
    good = good_history(seed)
    if not good.offsets[-1]:
        return
    choices = random.Random(seed)
    at = choices.choice(sorted(good.offsets[-1]))
    change = choices.choice([-2, -1, 1, 2])
    offsets = {**good.offsets[-1], at: good.offsets[-1][at] + change}
    broken = replace(good, offsets=[*good.offsets[:-1], offsets])
    assert violations(broken)
