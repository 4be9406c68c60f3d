"""docs/snapshots.md, done from its first line to its last as an operator would."""

from __future__ import annotations

import re
from pathlib import Path

from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.typed_commands import TypedCommands, page_blocks

PAGE = CHECKOUT / "docs" / "snapshots.md"
ID = "20261130T041500-7f3a"
"""Stands for the id of the snapshot that the first command makes."""


def test_every_command_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        typed = TypedCommands(broker)
        for topic in ("accounts", "customers"):
            typed.told("topics", "create", topic, "--compact", "--partitions", "2")
        typed.told("produce", "accounts", "-K", ":", given="alice:1\nbob:2\n")
        broker.metrics()  # Waits for the HTTP endpoint, which opens a moment later.
        outputs = list[str]()
        lines = [line for block in page_blocks(PAGE, "console") for line in block.splitlines()]
        made = ""
        for line in lines:
            if line.startswith("$ "):
                if " snapshot diff " in line:
                    change(typed)
                done = typed.line(line.removeprefix("$ ").replace(ID, made or ID))
                assert done.returncode == 0, done
                outputs.append(done.stdout + done.stderr)  # as a terminal shows it
                made = made or done.stdout.partition(":")[0]
            else:
                # As the page shows it, with other numbers.
                assert _shape(line).issubset(_shape(outputs[-1].replace(made, ID))), line

        created, earlier, listed, shown, consumed, got, different, dropped = outputs
        assert f"/snapshots/{made}" in created
        assert "1 topic, 2 partitions, 0 B as of 2026-11-30 04:15:00 UTC" in earlier
        assert made in listed
        ends = re.findall(r"^accounts +\d +0 +(\d) ", shown, re.MULTILINE)
        assert sum(map(int, ends)) == 2
        assert sorted(consumed.splitlines()) == ["alice:1", "bob:2"]
        assert got.startswith("1\n")
        assert "accounts: 1 added, 1 changed, 1 removed; 0 keys as before" in different
        assert dropped.startswith(f"{made}: dropped, ")
        typed.told("snapshot", "drop", earlier.partition(":")[0], "--yes")
        assert typed.told("snapshot", "list") == "there are no snapshots\n"


def change(typed: TypedCommands) -> None:
    """Add, change and remove a key, as clients have on the page."""
    given = "alice:90\ndave:12\nbob:NULL\n"
    typed.told("produce", "accounts", "-K", ":", "--null-value", "NULL", given=given)


def _shape(text: str) -> set[str]:
    """Returns the words of a text that are not numbers, sizes or paths."""
    return set(re.findall(r"(?<![\w/.-])[A-Za-z]{4,}(?![\w/.-])", text))
