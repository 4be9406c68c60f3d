"""`kompakt topics ...` as an operator types it, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.broker_process import BrokerProcess, free_ports
from tests.harness.clients import create_topic
from tests.harness.typed_commands import TypedCommands


@pytest.fixture(scope="module")
def kompakt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    with BrokerProcess(tmp_path_factory.mktemp("topics")) as broker:
        yield TypedCommands(broker)


def test_a_topic_is_created_listed_described_and_deleted(kompakt: TypedCommands) -> None:
    said = kompakt.told(
        "topics",
        "create",
        "orders",
        "--partitions",
        "3",
        "--compact",
        "--config",
        "segment.ms=60000",
    )
    assert said == "created orders with 3 partitions, segment.ms=60000, cleanup.policy=compact\n"

    assert ["orders", "3", "compact", "0", "0", "B"] in map(
        str.split, kompakt.told("topics", "list").splitlines()
    )
    lines = kompakt.told("topics", "describe", "orders").splitlines()
    assert lines[0].startswith("orders  (id ")
    assert lines[1:3] == ["  cleanup.policy=compact", "  segment.ms=60000"]
    assert lines[4].split() == ["0", "1", "0", "-", "0", "0", "0", "0", "B", "online"]
    assert max(map(len, lines)) <= 80

    assert kompakt.told("topics", "delete", "orders", "--yes") == "deleted orders\n"
    assert "orders" not in kompakt.told("topics", "list")


def test_tombstones_are_shown_with_the_dates_of_their_end(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "deleted", "--compact")
    kompakt.told("produce", "deleted", "-K", ":", given="a:1\nb:1\n")
    kompakt.told("produce", "deleted", "--tombstones", given="a\n")
    none = kompakt.told("topics", "describe", "deleted").splitlines()[-1]
    kompakt.told("compact", "now", "deleted")

    shown = kompakt.told("topics", "describe", "deleted").splitlines()[-1]
    (described,) = kompakt.json("topics", "describe", "deleted")["topics"]
    status = kompakt.json("compact", "status")["tombstones"]

    assert none == "tombstones: none in what passes have cleaned"
    assert shown.startswith("tombstones: 1 (")
    assert "uncompressed); the first falls due 2" in shown
    assert ", all by 2" in shown
    owed = described["tombstones"]
    assert owed["tombstones"] == 1
    assert owed["tombstone_bytes"] > 0
    assert owed["first_due_ms"] == owed["all_due_ms"] > 0
    assert [each["tombstones"] for each in owed["partitions"]] == [1]
    assert status["tombstones"] >= 1
    assert "tombstones: " in kompakt.told("compact", "status")
    nowhere = kompakt.told("topics", "describe", "deleted", "--url", "http://127.0.0.1:1")
    assert "tombstones: not known: no broker answers" in nowhere
    kompakt.told("topics", "delete", "deleted", "--yes")


def test_programs_read_the_same_as_json(kompakt: TypedCommands) -> None:
    made = kompakt.json("topics", "create", "read", "--partitions", "2")
    assert made["is_created"]

    (listed,) = [row for row in kompakt.json("topics", "list")["topics"] if row["topic"] == "read"]
    assert listed == {
        "topic": "read",
        "topic_id": made["topic_id"],
        "is_internal": False,
        "partitions": 2,
        "cleanup_policy": "delete",
        "offsets": 0,
        "bytes": 0,
    }
    (described,) = kompakt.json("topics", "describe", "read")["topics"]
    assert [row["partition"] for row in described["partitions"]] == [0, 1]
    assert described["configs"] == [
        {"name": "cleanup.policy", "value": "delete", "source": "DEFAULT_CONFIG"}
    ]


def test_settings_that_do_harm_are_warned_of(kompakt: TypedCommands) -> None:
    harmful = ("--compact", "--config", "delete.retention.ms=0")
    warning = "a deletion is gone after two passes"

    for options in ((), ("--dry-run",)):
        done = kompakt.run("topics", "create", "hasty", *harmful, *options)
        assert (done.returncode, warning in done.stderr) == (0, True), done
        assert "warning: with delete.retention.ms=0" in done.stderr
        kompakt.run("topics", "delete", "hasty", "--yes")
    (told,) = kompakt.json("topics", "create", "hasty", *harmful)["warnings"]
    assert warning in told
    assert kompakt.json("topics", "create", "patient", "--compact")["warnings"] == []
    kompakt.told("topics", "delete", "hasty", "patient", "--yes")


def test_a_dry_run_creates_nothing(kompakt: TypedCommands) -> None:
    assert kompakt.told("topics", "create", "tried", "--dry-run").startswith("would create tried")
    assert "Unknown topic config" in kompakt.refused(
        "topics", "create", "tried", "--dry-run", "--config", "nonsense=1"
    )

    assert "tried" not in kompakt.told("topics", "list")


def test_a_topic_gets_more_partitions_and_a_compacted_one_only_when_it_is_meant(
    kompakt: TypedCommands,
) -> None:
    kompakt.told("topics", "create", "grown", "--compact")
    kompakt.told("produce", "grown", "--key", "k", given="value\n")

    typed = ["topics", "add-partitions", "grown", "--to", "3"]
    assert kompakt.told(*typed, "--dry-run") == "grown would have 3 partitions, 1 before\n"
    assert "add --yes to confirm" in kompakt.refused(*typed, code=2)
    assert kompakt.told(*typed, "--yes") == "grown has 3 partitions, 1 before\n"
    (listed,) = [row for row in kompakt.json("topics", "list")["topics"] if row["topic"] == "grown"]
    assert (listed["partitions"], listed["offsets"]) == (3, 1)
    assert listed["bytes"] > 0
    assert "grown" in kompakt.refused("topics", "add-partitions", "grown", "--to", "2", "--yes")


def test_what_is_there_already_may_be_no_error(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "twice")

    assert "already exists" in kompakt.refused("topics", "create", "twice")
    assert "nothing was changed" in kompakt.told("topics", "create", "twice", "--if-not-exists")
    assert kompakt.told("topics", "delete", "absent", "--yes", "--if-exists") == ""


def test_one_topic_that_cannot_be_deleted_keeps_no_other(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "goes")

    assert "absent: there is no such topic" in kompakt.refused(
        "topics", "delete", "absent", "goes", "--yes"
    )
    assert "goes" not in kompakt.told("topics", "list")


def test_records_are_deleted_up_to_an_offset_where_the_policy_allows_it(
    kompakt: TypedCommands,
) -> None:
    kompakt.told("topics", "create", "short")
    kompakt.told("topics", "create", "kept", "--compact")
    before = ["--partition", "0", "--before"]

    assert kompakt.told("topics", "delete-records", "short", *before, "0").endswith(
        "begins at offset 0\n"
    )
    assert "beyond the end" in kompakt.refused("topics", "delete-records", "short", *before, "9")
    assert "produce tombstones" in kompakt.refused("topics", "delete-records", "kept", *before, "0")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["describe", "nope"], 1, "there is no topic nope; kompakt topics list shows all"),
        (["create", "a/b"], 1, "one or more characters other than ASCII"),
        (
            ["create", "x", "--config", "retention.ms=soon"],
            1,
            "soon for configuration retention.ms: Not a number of",
        ),
        (["create", "x", "--config", "retention.ms"], 2, "--config retention.ms: write NAME=VALUE"),
        (["delete", "nope"], 2, "add --yes to confirm"),
        (["delete", "nope", "--yes"], 1, "nope: there is no such topic"),
        (["list", "-b", "127.0.0.1:none"], 2, "127.0.0.1:none is not host:port"),
        (["list", "-b", "nowhere.invalid:1"], 3, "its name cannot be resolved"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_an_exit_code(
    kompakt: TypedCommands, arguments: list[str], code: int, sentence: str
) -> None:
    assert sentence in kompakt.refused("topics", *arguments, code=code)


def test_a_mistyped_topic_is_recognised(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "mistyped-often", "--compact")
    meant = "; did you mean mistyped-often?"

    assert kompakt.refused("topics", "describe", "mistypd-often").strip().endswith(meant)
    assert kompakt.refused("topics", "delete", "mistypd-often", "--yes").strip().endswith(meant)
    assert meant in kompakt.refused("configs", "describe", "--topic", "mistypd-often")
    assert meant in kompakt.refused("consume", "mistypd-often")
    assert meant in kompakt.refused("compact", "explain", "mistypd-often-0")


def test_what_answers_and_what_does_not_is_told_apart(kompakt: TypedCommands) -> None:
    (free,) = free_ports(1)
    http = f"127.0.0.1:{kompakt.broker.http_port}"

    said = kompakt.refused("topics", "list", "-b", f"127.0.0.1:{free}", code=3)
    assert said.startswith(f"no broker answers at 127.0.0.1:{free} (Connection refused): is it")
    assert "is not a Kafka broker" in kompakt.refused("topics", "list", "-b", http, code=3)
    several = f"127.0.0.1:{free},{kompakt.broker.bootstrap_servers}"
    assert kompakt.told("topics", "list", "-b", several)


def test_names_of_topics_are_completed(kompakt: TypedCommands) -> None:
    create_topic(kompakt.broker.bootstrap_servers, "completed", partitions=1, config={})
    kompakt.environment |= {
        "_KOMPAKT_COMPLETE": "complete_bash",
        "COMP_WORDS": "kompakt topics describe compl",
        "COMP_CWORD": "3",
    }
    try:
        assert kompakt.told().split() == ["completed"]
    finally:
        for name in ("_KOMPAKT_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
            del kompakt.environment[name]
