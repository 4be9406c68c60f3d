"""docs/state-store.md, done from its first line to its last as a user would."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.harness.broker_process import CHECKOUT, BrokerProcess, accepts_connections, free_ports
from tests.harness.fake_registry import FakeRegistry
from tests.harness.group_run import until
from tests.harness.typed_commands import COMMAND_SECONDS_MAX, TypedCommands, page_blocks

PAGE = CHECKOUT / "docs" / "state-store.md"
ENDS_WITH_ONE = {"kompakt get users bob"}
"""The commands that are there to say that a key has no value."""
KEYS = "curl -s http://127.0.0.1:9644/v1/topics/users/keys"
SERVICE = "python service.py"


def test_the_page_reads_waits_and_serves_without_a_copy(tmp_path: Path) -> None:
    with FakeRegistry().served() as registry, (user := User(tmp_path, registry.url)).broker:
        try:
            for line in "".join(page_blocks(PAGE, "console")).splitlines():
                user.do(line)
        finally:
            user.end()
    printed = user.printed

    assert printed["kompakt get users ada"] == ['{"city": "London"}\n']
    assert [line.split()[-2:] for line in printed["kompakt get users ada bob"][0].splitlines()] == [
        ["key", "value"],
        ['{"city":', '"London"}'],
        ['{"city":', '"Paris"}'],
    ]
    (found,) = map(json.loads, printed["kompakt get users ada --json"])
    assert (found["offset"], found["value"]) == (0, '{"city": "London"}')
    assert [json.loads(text) for text in printed[f"{KEYS}/ada"]] == [found]
    (by_bytes,) = [texts[0] for command, texts in printed.items() if "base64url" in command]
    assert json.loads(by_bytes) == found
    (batch,) = [json.loads(texts[0]) for command, texts in printed.items() if "batch" in command]
    assert [each.get("code") for each in batch["records"]] == [None, "deleted"]
    check_what_came_later(printed)


def check_what_came_later(printed: dict[str, list[str]]) -> None:
    unchanged, waited = (
        texts[0] for command, texts in printed.items() if "--etag-compare" in command
    )
    assert unchanged == ""
    assert json.loads(waited)["value"] == '{"city": "Turin"}'
    (own,) = [texts[0] for command, texts in printed.items() if "&min_offset=3" in command]
    assert json.loads(own)["offset"] == 3
    assert printed["kompakt get users ada --partition 0 --min-offset 3"] == ['{"city": "Turin"}\n']
    assert printed["curl -sf http://127.0.0.1:8080/city/ada"] == ["Turin", "Oslo"]
    assert printed["kompakt consume users.latest -K ="] == ['bob=(null)\nada={"city": "Oslo"}\n']
    assert printed["python reader.py"] == ["{b'ada': b'{\"city\": \"Oslo\"}'}\n"]
    check_values_with_a_schema(printed)


def check_values_with_a_schema(printed: dict[str, list[str]]) -> None:
    assert printed["kompakt get users eve"] == ['{"city": "Rome"}\n']
    decoded, raw = (
        json.loads(texts[0]) for command, texts in printed.items() if "/keys/eve" in command
    )
    assert (decoded["value"], decoded["schema"]) == ({"city": "Rome"}, {"id": 1, "type": "AVRO"})
    assert (raw["value"], raw["value_encoding"]) == ("\0\0\0\0\1\x08Rome", "utf-8")


class User:
    """Types the page's commands, in a folder with the service that it shows."""

    def __init__(self, folder: Path, registry_url: str) -> None:
        self.folder = folder
        self.broker = BrokerProcess(folder, {"schema.registry.url": registry_url})
        self.typed = TypedCommands(self.broker)
        (self.port,) = free_ports(1)
        service, reader, writer = page_blocks(PAGE, "python")
        text = service.replace("127.0.0.1:9644", f"127.0.0.1:{self.broker.http_port}")
        (folder / "service.py").write_text(text.replace("8080", str(self.port)))
        reader = reader.replace("127.0.0.1:9092", self.broker.bootstrap_servers)
        (folder / "reader.py").write_text(reader)
        writer = writer.replace("127.0.0.1:9092", self.broker.bootstrap_servers)
        (folder / "writer.py").write_text(writer.replace("http://127.0.0.1:8081", registry_url))
        self.printed = defaultdict[str, list[str]](list)
        """What each command has printed, in the order of the page."""
        self._begun = dict[str, subprocess.Popen[str]]()

    def do(self, line: str) -> None:
        """Type a line; one with & at its end continues beside the next ones."""
        assert line.startswith("$ "), line
        command = line.removeprefix("$ .venv/bin/").removeprefix("$ ").partition("  #")[0].strip()
        typed = line.removeprefix("$ ").replace(".venv/bin/python", sys.executable)
        typed = typed.replace(":8080", f":{self.port}")
        if command.endswith(" &"):
            self._begin(command.removesuffix(" &"), typed.removesuffix(" &"))
            return
        done = self.typed.line(typed, cwd=self.folder)
        assert done.returncode == (command in ENDS_WITH_ONE), (line, done)
        assert "Traceback" not in done.stderr, (line, done)
        assert command not in ENDS_WITH_ONE or "deleted" in done.stderr, done
        self.printed[command].append(done.stdout)

    def _begin(self, command: str, typed: str) -> None:
        self._begun[command] = self.typed.begun(typed, cwd=self.folder)
        if command == SERVICE:
            until("the service listens", lambda: accepts_connections(self.port), lambda: typed)

    def end(self) -> None:
        """Stop the service, and read what the other commands have printed that were begun."""
        for command, program in self._begun.items():
            if command == SERVICE:
                program.terminate()
            output, errors = program.communicate(timeout=COMMAND_SECONDS_MAX)
            assert program.returncode == 0, (command, errors)
            self.printed[command].append(output)
