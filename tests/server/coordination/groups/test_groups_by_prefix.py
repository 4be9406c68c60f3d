"""Groups are found by the beginning of their names, also those that come and go later."""

from __future__ import annotations

from typing import cast

from server.coordination.groups.group_entry import GroupEntry
from server.coordination.groups.groups_by_prefix import PREFIXES_MAX, GroupsByPrefix


def entry(name: str) -> GroupEntry:
    return cast("GroupEntry", name)


def names(groups: GroupsByPrefix, prefix: str) -> list[str]:
    return [str(each) for each in groups.matching(prefix)]


def test_groups_that_come_and_go_are_found_and_gone() -> None:
    entries = {"a.1": entry("a.1"), "b.1": entry("b.1")}
    groups = GroupsByPrefix(entries)
    assert names(groups, "a.") == ["a.1"]

    entries["a.2"] = entry("a.2")
    groups.added("a.2", entry("a.2"))
    del entries["a.1"]
    groups.removed("a.1")

    assert names(groups, "a.") == ["a.2"]
    assert names(groups, "b.") == ["b.1"]
    assert names(groups, "c.") == []


def test_very_many_prefixes_are_forgotten_and_found_again() -> None:
    groups = GroupsByPrefix({"a.1": entry("a.1")})

    for number in range(2 * PREFIXES_MAX):
        assert not groups.matching(f"x{number}")
    assert names(groups, "a.") == ["a.1"]
