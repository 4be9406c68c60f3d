"""The new offset of a group, in a partition that holds [10, 20)."""

from __future__ import annotations

import pytest

from cli.groups.reset_offsets import Aim, Goal, new_offset, parse_parts


@pytest.mark.parametrize(
    ("aim", "number", "committed", "expected"),
    [
        (Aim.EARLIEST, 0, 15, 10),
        (Aim.LATEST, 0, None, 20),
        (Aim.CURRENT, 0, 15, 15),
        (Aim.CURRENT, 0, 3, 10),
        (Aim.CURRENT, 0, 99, 20),
        (Aim.CURRENT, 0, None, 10),
        (Aim.OFFSET, 12, 15, 12),
        (Aim.OFFSET, 3, 15, 10),
        (Aim.OFFSET, 99, 15, 20),
        (Aim.SHIFT, 2, 15, 17),
        (Aim.SHIFT, -2, 15, 13),
        (Aim.SHIFT, -99, 15, 10),
        (Aim.SHIFT, 2, None, 12),
    ],
)
def test_the_new_offset_is_within_what_the_log_holds(
    aim: Aim, number: int, committed: int | None, expected: int
) -> None:
    goal = Goal(aim=aim, number=number)

    assert new_offset(goal, committed=committed, start=10, end=20, at_moment=None) == expected


@pytest.mark.parametrize(("at_moment", "expected"), [(14, 14), (-1, 20), (3, 10)])
def test_a_moment_stands_for_its_first_record_or_the_end(at_moment: int, expected: int) -> None:
    goal = Goal(aim=Aim.MOMENT, number=1_767_225_600_000)

    assert new_offset(goal, committed=11, start=10, end=20, at_moment=at_moment) == expected


def test_partitions_may_be_named_behind_a_topic() -> None:
    assert parse_parts("orders") == ("orders", None)
    assert parse_parts("orders:0,2") == ("orders", (0, 2))
    for text in ("", ":1", "orders:", "orders:a"):
        with pytest.raises(ValueError, match=r".*"):
            parse_parts(text)
