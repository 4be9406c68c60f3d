"""What the doctor says about followers and links, from the answers of a running broker."""

from __future__ import annotations

from typing import Any

import pytest

from cli.doctor.findings import Status
from cli.doctor.followers import judge_follower, judge_link
from server.metadata.followers import LAG_ENTRIES_MAX, LAG_OFFSETS_MAX

TOPIC: dict[str, Any] = {
    "name": "__transaction_state",
    "partitions": 50,
    "lag": 0,
    "seen_seconds_ago": 0.5,
    "checkpoints": 0,
}
FOLLOWER: dict[str, Any] = {
    "id": "me",
    "host": "10.0.0.1",
    "end": 12,
    "lag": 1,
    "seen_seconds_ago": 0.5,
    "coordinators": [
        TOPIC | {"name": "__consumer_offsets", "lag": 3},
        TOPIC,
    ],
}
PARTITION: dict[str, Any] = {"state": "copying", "lag": 2, "reason": ""}
LINK: dict[str, Any] = {
    "name": "dr",
    "bootstrap": "kafka:9092",
    "reason": "",
    "problems": {},
    "partitions": [PARTITION, PARTITION],
}


def test_a_follower_that_keeps_up_is_fine() -> None:
    found = judge_follower(FOLLOWER, 12)
    assert found.status is Status.OK
    assert "lag 1 entry of the metadata, 3 offsets of the coordinators' topics" in found.text


@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        ({"seen_seconds_ago": 61}, "start it again"),
        ({"lag": LAG_ENTRIES_MAX + 1}, "says why it is behind"),
        ({"end": 11}, "wait"),
        ({"coordinators": [TOPIC | {"lag": LAG_OFFSETS_MAX + 1}]}, "says why it is behind"),
        ({"coordinators": [TOPIC, TOPIC | {"seen_seconds_ago": 61}]}, "says why"),
    ],
)
def test_one_that_is_away_or_behind_is_a_warning(changed: dict[str, Any], remedy: str) -> None:
    found = judge_follower(FOLLOWER | changed, 12)
    assert found.status is Status.WARNING
    assert remedy in str(found.remedy)


def test_a_link_that_copies_is_fine() -> None:
    found = judge_link(LINK)
    assert found.status is Status.OK
    assert "2 partitions, lag 4 offsets" in found.text
    assert judge_link(LINK | {"partitions": []}).status is Status.OK


@pytest.mark.parametrize(
    "changed",
    [
        {"reason": "no broker answers"},
        {"problems": {"t": "no broker answers"}},
        {"partitions": [PARTITION, {"state": "failed", "lag": 0, "reason": "no broker answers"}]},
    ],
)
def test_a_link_with_a_problem_is_a_warning(changed: dict[str, Any]) -> None:
    found = judge_link(LINK | changed)
    assert found.status is Status.WARNING
    assert "no broker answers" in found.text
    assert "kompakt replica status dr" in str(found.remedy)
