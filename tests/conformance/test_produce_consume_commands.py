"""`kompakt produce` and `consume` as a user types them, against a real broker."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from tests.harness.broker_process import CHECKOUT, BrokerProcess, free_ports
from tests.harness.clients import CODECS
from tests.harness.terminal import Terminal
from tests.harness.typed_commands import TypedCommands

README = CHECKOUT / "README.md"


@pytest.fixture(scope="module")
def kompakt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    with BrokerProcess(tmp_path_factory.mktemp("records")) as broker:
        typed = TypedCommands(broker)
        typed.told("topics", "create", "kept", "--compact")
        yield typed


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_the_last_value_of_each_key_with_tombstones_applied(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "accounts", "--compact", "--partitions", "2")
    said = kompakt.told(
        "produce", "accounts", "-K", ":", given="alice:1\nbob:1\nalice:2\ncarol:5\n"
    )
    assert said.startswith("accounts: 4 records stored")
    kompakt.told("produce", "accounts", "--tombstones", given="bob\n")

    table = kompakt.run("consume", "accounts", "--latest")
    assert sorted(row.split()[-2:] for row in lines(table.stdout)[1:]) == [
        ["alice", "2"],
        ["carol", "5"],
    ]
    assert table.stderr == "accounts: 2 keys with a value, from 5 records\n"
    assert max(map(len, lines(table.stdout))) <= 80
    assert sorted(lines(kompakt.told("consume", "accounts", "-K", "="))) == [
        "alice=1",
        "alice=2",
        "bob=(null)",
        "bob=1",
        "carol=5",
    ]
    assert kompakt.told("consume", "accounts", "--latest", "--key", "bob", "-K", "=") == ""
    # What the cleaner leaves says the same.
    kompakt.told("compact", "now", "accounts")
    assert kompakt.told("consume", "accounts", "--latest") == table.stdout


def test_the_last_values_are_exported_as_json_lines_and_as_an_arrow_file(
    kompakt: TypedCommands, tmp_path: Path
) -> None:
    kompakt.told("topics", "create", "exported", "--compact", "--partitions", "2")
    kompakt.told("topics", "create", "imported", "--compact", "--partitions", "2")
    given = "a:1\nb:1\na:2\nc:3\n"
    kompakt.told("produce", "exported", "-K", ":", "--header", "h=x", given=given)
    kompakt.told("produce", "exported", "--tombstones", given="c\n")

    exported = kompakt.told("consume", "exported", "--latest", "--json")
    file = tmp_path / "exported.arrow"
    written = kompakt.run("consume", "exported", "--latest", "--arrow", str(file))

    rows = [json.loads(line) for line in lines(exported)]
    assert sorted((row["key"], row["value"]) for row in rows) == [("a", "2"), ("b", "1")]
    for row in rows:
        assert row["topic"] == "exported"
        assert row["headers"] == [{"key": "h", "value": "x"}]
        assert set(row) == {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
    assert (written.returncode, written.stdout) == (0, "")
    assert written.stderr == "exported: 2 keys with a value, from 5 records\n"
    with pa.ipc.open_file(file) as opened:
        table = opened.read_all()
    assert table.column_names == ["partition", "offset", "timestamp", "key", "value", "headers"]
    columns = ("partition", "offset", "key", "value")
    assert [tuple(row[name] for name in columns) for row in table.to_pylist()] == [
        (row["partition"], row["offset"], row["key"].encode(), row["value"].encode())
        for row in rows
    ]
    # JSON lines are also the way back.
    kompakt.told("produce", "imported", "--json", given=exported)
    again = kompakt.told("consume", "imported", "--latest", "-K", "=")
    assert sorted(lines(again)) == ["a=2", "b=1"]
    assert (
        kompakt.refused("consume", "exported", "--arrow", "x", code=2) == "--arrow needs --latest"
    )


def test_the_last_value_of_a_key_is_the_one_with_the_highest_version(
    kompakt: TypedCommands,
) -> None:
    settings = ("compaction.strategy=header", "compaction.strategy.header=version")
    configs = [part for each in settings for part in ("--config", each)]
    kompakt.told("topics", "create", "quotes", "--compact", *configs)
    for value, version in (("new", "00000002"), ("late", "00000001"), ("last", "00000003")):
        key = "other" if value == "last" else "apple"
        kompakt.told(
            "produce",
            "quotes",
            "-K",
            ":",
            "--header",
            f"version={version}",
            given=f"{key}:{value}\n",
        )

    before = kompakt.told("consume", "quotes", "--latest", "-K", "=")
    assert lines(before) == ["apple=new", "other=last"]
    outranked = "1 record outranked by an earlier one, ranked by header version: offset 1 by 0"
    assert outranked in kompakt.told("compact", "plan", "quotes")
    assert outranked in kompakt.told("compact", "now", "quotes")
    assert lines(kompakt.told("consume", "quotes", "-K", "=")) == ["apple=new", "other=last"]
    assert kompakt.told("consume", "quotes", "--latest", "-K", "=") == before


def test_a_terminal_sees_how_much_of_a_file_is_sent(kompakt: TypedCommands, tmp_path: Path) -> None:
    kompakt.told("topics", "create", "from-a-file")
    file = tmp_path / "records"
    file.write_text("".join(f"record {number:04}\n" for number in range(300)))
    shown = Terminal()

    sending = kompakt.started(
        "produce", "from-a-file", str(file), "--rate", "200",
        stdout=subprocess.PIPE, stderr=shown.descriptor,
    )  # fmt: skip
    output, _ = sending.communicate(timeout=60)

    assert output.startswith("from-a-file: 300 records stored")
    bars = plain(shown.text())
    assert re.search(r"records stored, .* (?!0%|100%)\d+% \d+:\d\d:\d\d", bars), bars
    assert "records/s" in bars


def plain(text: str) -> str:
    """Without what colours and erases."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_topic_is_copied_by_a_pipe_of_json(kompakt: TypedCommands) -> None:
    # A record of 2023 is older than what topics keep by default.
    kept = ("--config", "retention.ms=-1")
    kompakt.told("topics", "create", "here", *kept)
    kompakt.told("topics", "create", "there", "--partitions", "3", *kept)
    rows = [
        {"key": "k", "value": "é\n", "headers": {"h": "x"}, "timestamp": 1_700_000_000_000},
        {"key_base64": "/w==", "value": None},
        {"value_base64": "AAE="},
    ]
    kompakt.told("produce", "here", "--json", given="\n".join(map(json.dumps, rows)))

    copied = kompakt.told("consume", "here", "--json")
    kompakt.told("produce", "there", "--json", given=copied)

    def without_place(text: str) -> list[str]:
        read = [json.loads(line) for line in lines(text)]
        places = {"topic", "partition", "offset"}
        return sorted(
            json.dumps({name: row[name] for name in row.keys() - places}, sort_keys=True)
            for row in read
        )

    assert without_place(kompakt.told("consume", "there", "--json")) == without_place(copied)
    first = json.loads(lines(copied)[0])
    assert first["headers"] == [{"key": "h", "value": "x"}]
    assert first["timestamp"] == 1_700_000_000_000


def test_a_part_of_a_topic_is_read(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "parts", "--partitions", "2")
    kompakt.told("produce", "parts", "-p", "0", given="a\nb\nc\n")
    kompakt.told("produce", "parts", "-p", "1", given="x\ny\n")

    def read(*options: str) -> list[str]:
        return sorted(lines(kompakt.told("consume", "parts", *options)))

    assert read() == ["a", "b", "c", "x", "y"]
    assert read("-p", "1") == ["x", "y"]
    assert read("-o", "1") == ["b", "c", "y"]
    assert read("-o", "-1") == ["c", "y"]
    assert read("-o", "end") == []
    assert read("--since", "1h") == read()
    assert read("--until", "1h") == []
    assert len(read("-n", "2")) == 2
    assert read("-p", "1", "--hex") == ["78", "79"]
    (row,) = lines(kompakt.told("consume", "parts", "-p", "1", "-o", "1", "--details"))
    assert row.startswith("1:1  ")
    assert row.endswith('Z  (null) = "y"')


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_written_and_read(kompakt: TypedCommands, codec: str) -> None:
    kompakt.told("topics", "create", codec)
    given = "ours" * 100
    producer = Producer(
        {"bootstrap.servers": kompakt.broker.bootstrap_servers, "compression.type": codec}
    )
    producer.produce(codec, b"theirs" * 100)
    assert producer.flush(20) == 0

    kompakt.told("produce", codec, "--compression", codec, given=given)

    assert lines(kompakt.told("consume", codec)) == ["theirs" * 100, given]


def test_what_comes_is_followed_until_ctrl_c(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "followed")
    kompakt.told("produce", "followed", given="before\n")

    with following(kompakt, "followed") as read_line:
        assert read_line() == "before"
        kompakt.told("produce", "followed", given="after\n")
        assert read_line() == "after"


def test_the_table_of_last_values_goes_on_with_their_changes(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "changed", "--compact")
    kompakt.told("produce", "changed", "-K", ":", given="a:1\nb:1\na:2\n")

    with following(kompakt, "changed", "--latest") as read_line:
        assert [read_line().split()[-2:] for _ in range(3)] == [
            ["key", "value"],
            ["a", "2"],
            ["b", "1"],
        ]
        kompakt.told("produce", "changed", "--tombstones", given="b\n")
        assert read_line().split()[-2:] == ["b", "(deleted)"]


@contextmanager
def following(kompakt: TypedCommands, topic: str, *options: str) -> Iterator[Callable[[], str]]:
    """What reads the next line of `kompakt consume --follow`, which Ctrl-C ends."""
    # If the tests run in the background, they and their children ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    typed = kompakt.started("consume", topic, "--follow", *options, stdout=subprocess.PIPE)
    assert typed.stdout is not None
    stdout = typed.stdout
    with stdout:
        yield lambda: stdout.readline().rstrip()
        typed.send_signal(signal.SIGINT)
        assert typed.wait(timeout=20) == 130


def test_a_broker_that_is_gone_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        kompakt = TypedCommands(broker)
        kompakt.told("topics", "create", "left")
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        typed = kompakt.started("produce", "left", "--timeout", "2", **pipes)
        assert typed.stdin is not None
        typed.stdin.write("stored\n")
        typed.stdin.flush()
        while kompakt.told("consume", "left") != "stored\n":
            assert typed.poll() is None
        broker.kill()
        _, said = typed.communicate("lost\n", timeout=60)

    assert typed.returncode == 3
    assert said == (
        "kompakt: the broker acknowledged nothing for 2 s: is it still running? (stored: 1)\n"
    )


def test_a_broker_that_sends_clients_astray_is_told_by_the_property(tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    astray = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{nobody}"}
    with BrokerProcess(tmp_path, astray) as broker:
        kompakt = TypedCommands(broker)
        kompakt.told("topics", "create", "astray")

        for command in ("produce", "consume"):
            said = kompakt.refused(command, "astray", given="x", code=3)
            assert f"sends clients to 127.0.0.1:{nobody} (Connection refused)" in said
            assert "fix its advertised.listeners" in said


def test_a_reader_that_has_enough_is_no_failure(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "long")
    kompakt.told("produce", "long", given="x" * 50 + "\n" + ("y" * 50 + "\n") * 20_000)

    done = kompakt.line(".venv/bin/kompakt consume long | head -n 1")

    assert (done.returncode, done.stdout, done.stderr) == (0, "x" * 50 + "\n", "")


@pytest.mark.parametrize(
    ("arguments", "given", "code", "sentence"),
    [
        (["produce", "nope"], "x", 1, "there is no topic nope"),
        (["produce", "kept"], "x", 1, "line 1: kept is compacted, so every record needs a key"),
        (
            ["produce", "kept", "-K", ":"],
            "a:1\nb\n",
            1,
            "line 2: there is no separator ':' (stored: 1)",
        ),
        (["produce", "kept", "-p", "9"], "x", 1, "kept has no partition 9: it has 1"),
        (["produce", "kept", "--key", "a", "-K", ":"], "", 2, "cannot be combined"),
        (["produce", "kept", "--compression", "zip"], "", 2, "one of none, gzip"),
        (["produce", "kept", "--header", "x"], "", 2, "--header x: write NAME=VALUE"),
        (["produce", "kept", "--key", "a"], "x" * 2_000_000, 1, "larger than max.message.bytes"),
        (["consume", "nope"], "", 1, "there is no topic nope"),
        (["consume", "kept", "-p", "9"], "", 1, "kept has no partition 9: it has 1"),
        (["consume", "kept", "-o", "here"], "", 2, "--offset here: write beginning, end"),
        (["consume", "kept", "--since", "noon"], "", 2, "--since noon is not a valid time: write"),
        (["consume", "kept", "--json", "--hex"], "", 2, "cannot be combined"),
        (["consume", "kept", "-b", "127.0.0.1:1"], "", 3, "no broker answers at 127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_an_exit_code(
    kompakt: TypedCommands, arguments: list[str], given: str, code: int, sentence: str
) -> None:
    assert sentence in kompakt.refused(*arguments, given=given, code=code)


def test_the_commands_of_the_readme_work_as_they_stand_there(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "accounts", "--compact", "--if-not-exists")
    section = README.read_text().split("## Use it from the command line\n")[1].split("\n## ")[0]
    typed = [line[2:] for line in lines(section) if line.startswith("$ ")]
    assert len(typed) >= 10

    for line in typed:
        done = kompakt.line(line)
        assert done.returncode == 0, (line, done)
        assert "Traceback" not in done.stderr, (line, done)
