"""The range of offsets that a consume command reads from a partition that holds [10, 20)."""

from __future__ import annotations

import pytest

from cli.base.command_end import EXIT_USAGE, CommandFailed
from cli.consume.range import Begin, Range, choose_range, parse_begin


@pytest.mark.parametrize(
    ("begin", "first"),
    [("beginning", 10), ("end", 20), (15, 15), (3, 10), (99, 20), (-3, 17), (-99, 10)],
)
def test_where_it_begins(begin: Begin, first: int) -> None:
    chosen = choose_range(start=10, end=20, begin=begin, since=None, until=None)

    assert chosen == Range(begin=first, end=20)


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        pytest.param(12, None, (12, 20), id="since"),
        pytest.param(-1, None, (20, 20), id="nothing_is_that_late"),
        pytest.param(None, 15, (10, 15), id="until"),
        pytest.param(None, -1, (10, 20), id="all_is_before"),
        pytest.param(15, 12, (15, 15), id="the_wrong_way_round"),
        pytest.param(12, 99, (12, 20), id="appended_meanwhile"),
    ],
)
def test_moments_bound_it(since: int | None, until: int | None, expected: tuple[int, int]) -> None:
    chosen = choose_range(start=10, end=20, begin="beginning", since=since, until=until)

    assert (chosen.begin, chosen.end) == expected


def test_what_stands_for_a_begin() -> None:
    assert [parse_begin(text) for text in ("beginning", "end", "7", "-7")] == [
        "beginning",
        "end",
        7,
        -7,
    ]
    with pytest.raises(CommandFailed) as refused:
        parse_begin("first")
    assert refused.value.exit_code == EXIT_USAGE
