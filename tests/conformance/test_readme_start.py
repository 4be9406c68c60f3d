"""The first commands of README.md, as a newcomer types them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.typed_commands import TypedCommands


def typed() -> list[str]:
    """The commands of the section "Start", except the one that starts the broker."""
    section = (CHECKOUT / "README.md").read_text().split("## Start\n")[1].split("\n## ")[0]
    first, *rest = re.findall(r"^\$ (.+)$", section, re.MULTILINE)
    assert first == "make run"
    return rest


def test_the_first_commands_of_the_readme_show_a_topic_compacted(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        commands = TypedCommands(broker)
        printed = ""
        for line in typed():
            done = commands.line(line)
            assert done.returncode == 0, (line, done)
            printed = done.stdout

    assert printed == "bob:1\nalice:2\n"
