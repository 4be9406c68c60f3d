"""docs/operations.md, done from its first line to its last as an operator would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.typed_commands import TypedCommands

PAGE = CHECKOUT / "docs" / "operations.md"
ENDS_WITH_ONE = {
    ("A damaged segment", "dump-log"),
}
"""The commands that are there to say that something is wrong."""


def steps() -> Iterator[tuple[str, str]]:
    """Each section's commands, and what it says in between to do with the broker."""
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                yield title, line


def test_every_command_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    is_damaged = False
    with operator.broker:
        operator.prepare()
        for section, line in steps():
            if section == "A damaged segment" and not is_damaged:
                operator.damage_accounts()
                is_damaged = True
            operator.do(section, line)

        assert is_damaged
        assert operator.typed.told("consume", "accounts", "-K", ":") == "alice:1\n"
        assert operator.typed.json("compact", "status")["quarantined"] == []


class Operator:
    """Does what the page says, in a folder with one broker's data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = BrokerProcess(folder)
        self.typed = TypedCommands(self.broker)

    def prepare(self) -> None:
        """The topics that the page speaks of, with something in them."""
        compacted, others = ("accounts", "customers"), ("events", "unused")
        for topic in (*compacted, *others):
            options = ["--compact"] if topic in compacted else []
            self.typed.told("topics", "create", topic, *options)
        self.typed.told("produce", "customers", "-K", ":", given="carol:1\ndave:1\n")
        self.typed.told("produce", "accounts", "-K", ":", given="alice:1\n")
        self.typed.told("produce", "events", given="a\nb\nc\n")

    def damage_accounts(self) -> None:
        """Let the disk give back other bytes than it was given."""
        self.typed.told("produce", "accounts", "-K", ":", given="bob:1\nbob:2\n")
        newest = max(self.folder.glob("data/accounts.*/0/*.log"))
        data = newest.read_bytes()
        newest.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        self.typed.run("compact", "now", "accounts-0")

    def do(self, section: str, line: str) -> None:
        if line == "# stop the broker":
            assert self.broker.stop() == 0
        elif match := re.fullmatch(r"# start the broker(?: with ([^=]+)=(.+))?", line):
            self.broker.overrides = {match[1]: self.folder / match[2]} if match[1] else {}
            self.broker.start()
            self.broker.metrics()  # Waits for the HTTP endpoint, which opens a moment later.
        else:
            assert line.startswith("$ "), line
            self._type(section, line.removeprefix("$ "))

    def _type(self, section: str, line: str) -> None:
        command = re.search(r"kompakt (dump-log|\w+ \w+|\w+)", line)
        code = int(command is not None and (section, command[1]) in ENDS_WITH_ONE)
        done = self.typed.line(line, cwd=self.folder)
        assert done.returncode == code, (line, done)
        assert "Traceback" not in done.stderr, (line, done)
