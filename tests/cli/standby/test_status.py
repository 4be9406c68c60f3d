"""What `kompakt standby status --of` finds wrong with the standbys of a broker."""

from __future__ import annotations

from typing import Any

import pytest

from cli.standby.status import _lines, _mirrors_line, _problems
from server.metadata.followers import LAG_ENTRIES_MAX, LAG_OFFSETS_MAX

TOPIC: dict[str, Any] = {"name": "__consumer_offsets", "lag": 3, "seen_seconds_ago": 0.5}
FOLLOWER: dict[str, Any] = {
    "id": "me",
    "lag": 1,
    "seen_seconds_ago": 0.5,
    "download": None,
    "coordinators": [TOPIC],
}


def test_one_that_was_promoted_shows_nothing_of_before() -> None:
    found = {"state": "promoted", "reason": ""}

    assert list(_lines(found)) == [
        "state       promoted",
        "to do       nothing: it is a broker now, and its next start is kompakt serve",
    ]


def test_the_lag_of_mirrors_that_are_not_copied_is_unknown() -> None:
    mirrors = {"partitions": 3, "by_state": {"copying": 1, "failed": 2}, "lag": 0, "reason": ""}

    assert "lag 0 offsets and unknown for 2 partitions" in _mirrors_line(mirrors)


def problems(**changed: object) -> list[str]:
    return list(_problems({"followers": [FOLLOWER | changed]}))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"seen_seconds_ago": 61}, "me is away"),
        ({"lag": LAG_ENTRIES_MAX + 1}, "me is behind: "),
        (
            {"coordinators": [TOPIC | {"lag": LAG_OFFSETS_MAX + 1}]},
            "behind with __consumer_offsets",
        ),
        (
            {"coordinators": [TOPIC | {"seen_seconds_ago": 61}]},
            "no longer asks for __consumer_offsets",
        ),
    ],
)
def test_each_followed_log_can_be_a_problem(changed: dict[str, object], problem: str) -> None:
    (found,) = problems(**changed)
    assert problem in found


def test_one_that_keeps_up_or_downloads_has_none() -> None:
    assert problems() == []
    assert problems(lag=LAG_ENTRIES_MAX + 1, download={"position": 1, "size": 2}) == []


def test_one_that_is_away_has_no_other_problem() -> None:
    silent = TOPIC | {"seen_seconds_ago": 61, "lag": LAG_OFFSETS_MAX + 1}
    (found,) = problems(seen_seconds_ago=61, coordinators=[silent])
    assert "is away" in found
