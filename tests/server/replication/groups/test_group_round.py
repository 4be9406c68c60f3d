"""What a look at a source's groups has found, and what it keeps of the look before."""

from __future__ import annotations

import pytest

from protocol.wire.numbers import Epoch, Offset
from server.replication.groups import group_round
from server.replication.groups.group_offsets import Commit
from server.replication.groups.group_round import Commits, GroupRound
from storage.formats.topic_partition import TopicPartition


def waiting(offset: int, count: int = 1) -> Commits:
    return {
        TopicPartition("t", number): Commit(Offset(offset), Epoch(0), "") for number in range(count)
    }


def look(
    answered: dict[str, Commits],
    *,
    refused: tuple[str, ...] = (),
    before: GroupRound | None = None,
    is_whole: bool = True,
) -> GroupRound:
    found = GroupRound()
    for group in (*answered, *refused):
        assert found.begin(group)
    for group, commits in answered.items():
        found.answered(group, commits)
    found.is_whole = is_whole
    found.keep(before or GroupRound())
    return found


BEFORE = look({"a": waiting(5), "b": waiting(6), "c": {}})


def test_a_group_that_was_refused_keeps_what_waited_in_it() -> None:
    found = look({"b": waiting(7)}, refused=("a",), before=BEFORE)

    assert found.waiting == {"a": waiting(5), "b": waiting(7)}
    assert found.waiting_count == 2


def test_a_group_that_waits_for_nothing_any_more_is_forgotten() -> None:
    found = look({"a": {}, "b": {}, "c": {}}, before=BEFORE)

    assert (found.waiting, found.waiting_count) == ({}, 0)


@pytest.mark.parametrize(("is_whole", "kept"), [(True, set()), (False, {"a", "b"})])
def test_a_group_that_is_gone_is_forgotten_once_all_brokers_have_answered(
    is_whole: bool, kept: set[str]
) -> None:
    found = look({"d": {}}, before=BEFORE, is_whole=is_whole)

    assert set(found.waiting) == kept
    assert found.groups == ({"d"} if is_whole else {"a", "b", "c", "d"})


def test_looks_without_an_answer_remember_a_bounded_number_of_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_round, "GROUPS_MAX", 3)
    monkeypatch.setattr(group_round, "WAITING_MAX", 4)
    found = BEFORE
    for number in range(5):
        found = look({f"new {number}": waiting(9)}, before=found, is_whole=False)

    assert len(found.groups) == 3
    assert found.waiting_count == sum(map(len, found.waiting.values())) == 4
    assert "new 4" in found.waiting


def test_more_groups_than_can_be_followed_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_round, "GROUPS_MAX", 1)
    found = GroupRound()

    assert found.begin("a")
    assert not found.begin("b")

    assert found.problems == {"groups": "more than 1 group: name fewer by --group"}


def test_offsets_that_are_not_remembered_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_round, "WAITING_MAX", 3)

    found = look({"a": waiting(5, count=2), "b": waiting(6, count=2), "c": waiting(7)})

    assert set(found.waiting) == {"a", "c"}
    assert list(found.problems) == ["b"]
    assert "records of 2 offsets" in found.problems["b"]
