"""`kompakt configs set --dry-run`: what a change would remove, as text."""

from __future__ import annotations

from typing import Any

import pytest

from cli.configs.change import Change, Operation, value_after
from cli.configs.preview import PARTITIONS_LISTED_MAX, UNCHANGED, print_previews

Json = dict[str, Any]


def part(
    number: int = 0,
    *,
    deletion: bool = False,
    compaction: bool = False,
    freed: int = 30,
    unkeyed: tuple[int, int] = (0, 0),
) -> Json:
    deleted = {"segments_by_age": 1, "segments_by_size": 2, "records": 4, "bytes": 40}
    preview = {
        "changes_deletion": deletion,
        "changes_compaction": compaction,
        "notes": ["a note"],
        "records": 10,
        "bytes": 100,
        "deletion": deleted if deletion else dict.fromkeys(deleted, 0),
        "compaction": {
            "records_dropped": 3,
            "bytes_freed": freed,
            "unkeyed_dropped": unkeyed[0],
            "unkeyed_kept": unkeyed[1],
        }
        if compaction
        else None,
    }
    return {"topic": "events", "partition": number, "preview": preview}


def printed(capsys: pytest.CaptureFixture[str], *parts: Json) -> list[str]:
    print_previews(parts)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_change_that_removes_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, part(0), part(1)) == [f"  {UNCHANGED}", "  a note"]
    assert printed(capsys) == []


def test_what_goes_is_summed_and_shown_by_partition(capsys: pytest.CaptureFixture[str]) -> None:
    first = part(0, deletion=True, compaction=True, unkeyed=(2, 1))
    lines = printed(capsys, first, part(1, deletion=True, compaction=True))

    assert lines[0] == (
        "  retention would delete 8 records (80 B) of 20 records (200 B) at once:"
        " 2 segments by age, 4 by size"
    )
    assert lines[1] == "  compaction would drop 6 records and free 60 B of 20 records (200 B)"
    assert lines[2].startswith("  records without a key: 2 of those dropped, 1 stay")
    assert [line.split()[0] for line in lines[3:]] == ["partition", "events-0", "events-1", "a"]
    assert lines[4].split()[1:] == ["10", "100", "B", "4", "40", "B", "3", "30", "B", "2"]


def test_one_part_alone_leaves_the_other_out(capsys: pytest.CaptureFixture[str]) -> None:
    (only, *_) = printed(capsys, part(0, compaction=True))

    assert only.startswith("  compaction would drop 3 records")


def test_of_many_partitions_those_are_listed_from_which_most_goes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    count = PARTITIONS_LISTED_MAX + 5
    lines = printed(capsys, *(part(at, compaction=True, freed=at) for at in range(count)))

    listed = [line.split()[0] for line in lines if line.startswith("events-")]
    assert listed == [f"events-{at}" for at in range(5, count)]
    assert lines[-2] == "  and 5 partitions from which less goes (--json)"


@pytest.mark.parametrize(
    ("operation", "value", "after"),
    [
        (Operation.SET, "delete", "delete"),
        (Operation.DELETE, None, None),
        (Operation.APPEND, "delete", "compact,delete"),
        (Operation.APPEND, "compact", "compact"),
        (Operation.SUBTRACT, "compact", ""),
    ],
)
def test_the_value_after_a_change_is_known_before_it(
    operation: Operation, value: str | None, after: str | None
) -> None:
    change = Change(name="cleanup.policy", operation=operation, value=value)

    assert value_after("compact", change) == after
