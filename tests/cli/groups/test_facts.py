"""The lag of groups."""

from __future__ import annotations

import pytest

from cli.groups.facts import Progress


@pytest.mark.parametrize(
    ("committed", "start", "end", "lag"),
    [(3, 0, 5, 2), (None, 0, 5, None), (3, None, None, None), (3, 4, 9, 5), (9, 0, 5, 0)],
    ids=["behind", "nothing", "gone", "before_the_start", "beyond_the_end"],
)
def test_the_lag_counts_offsets_that_can_still_be_read(
    committed: int | None, start: int | None, end: int | None, lag: int | None
) -> None:
    each = Progress(part=("orders", 0), committed=committed, start=start, end=end, member=None)

    assert each.lag == lag
