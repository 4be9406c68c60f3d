"""`kompakt configs ...` as an operator types it, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.broker_process import BrokerProcess
from tests.harness.typed_commands import TypedCommands


@pytest.fixture(scope="module")
def kompakt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedCommands]:
    with BrokerProcess(tmp_path_factory.mktemp("configs")) as broker:
        typed = TypedCommands(broker)
        typed.told("topics", "create", "orders", "--compact")
        yield typed


def test_what_is_set_is_told_apart_from_defaults(kompakt: TypedCommands) -> None:
    lines = kompakt.told("configs", "describe", "--topic", "orders").splitlines()

    assert [line.split() for line in lines[:2]] == [
        ["name", "value", "from"],
        ["cleanup.policy", "compact", "topic"],
    ]
    assert lines[2].endswith("more have their defaults (--all)")
    everything = kompakt.told("configs", "describe", "--topic", "orders", "--all")
    assert ["retention.ms", "604800000", "default"] in map(str.split, everything.splitlines())


def test_a_named_setting_is_told_with_its_meaning(kompakt: TypedCommands) -> None:
    lines = kompakt.told("configs", "describe", "--topic", "orders", "cleanup.policy").splitlines()

    assert lines[:3] == [
        "cleanup.policy=compact",
        "  list, from: topic",
        "  otherwise: log.cleanup.policy=delete (default)",
    ]
    assert "compact keeps the" in " ".join(lines[3:])
    assert max(map(len, lines)) <= 80
    broker = kompakt.told("configs", "describe", "--broker", "log.dirs")
    assert "from: broker's configuration; changing it needs a restart" in broker


def test_a_setting_changes_and_goes_back_while_the_broker_runs(kompakt: TypedCommands) -> None:
    typed = ["--topic", "orders"]

    assert kompakt.told("configs", "set", *typed, "segment.ms=60000") == (
        "topic orders: segment.ms is 60000 (from: topic), was 604800000 (from: default)\n"
    )
    assert "as before" in kompakt.told("configs", "set", *typed, "segment.ms=60000")
    assert "segment.ms is 604800000 (from: default)" in kompakt.told(
        "configs", "unset", *typed, "segment.ms"
    )


def test_a_list_is_extended_and_shortened(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "both", "--compact")
    typed = ["configs", "set", "--topic", "both"]

    (appended,) = kompakt.json(*typed, "--append", "cleanup.policy=delete")["configs"]
    assert (appended["before"]["value"], appended["now"]["value"]) == ("compact", "compact,delete")
    (left,) = kompakt.json(*typed, "--subtract", "cleanup.policy=compact")["configs"]
    assert left["now"]["value"] == "delete"


def test_settings_of_all_brokers_are_those_that_were_set(kompakt: TypedCommands) -> None:
    setting = "log.cleaner.io.max.bytes.per.second"

    assert "no settings for all brokers" in kompakt.told("configs", "describe", "--all-brokers")
    said = kompakt.told("configs", "set", "--all-brokers", f"{setting}=1000000")
    assert said.startswith(f"all brokers: {setting} is 1000000")
    assert said.endswith("was not set\n")
    assert setting in kompakt.told("configs", "describe", "--broker")
    assert "is not set" in kompakt.told("configs", "unset", "--all-brokers", setting)


def test_a_logger_tells_more_until_it_is_unset(kompakt: TypedCommands) -> None:
    assert "root" in kompakt.told("configs", "describe", "--loggers", "--all")

    said = kompakt.told("configs", "set", "--loggers", "cleaner.pool.pool=DEBUG")
    assert said.startswith("loggers of broker 1: cleaner.pool.pool is DEBUG (from: logger)")
    kompakt.told("configs", "unset", "--loggers", "cleaner.pool.pool")
    assert "nonsense" in kompakt.refused(
        "configs", "set", "--loggers", "cleaner.pool.pool=nonsense"
    )


def test_a_dry_run_changes_nothing(kompakt: TypedCommands) -> None:
    typed = ["configs", "set", "--topic", "orders", "--dry-run"]

    assert "nothing was changed" in kompakt.told(*typed, "retention.ms=1")
    assert "Not a number of type LONG" in kompakt.refused(*typed, "retention.ms=soon")
    (row,) = kompakt.json("configs", "describe", "--topic", "orders", "retention.ms")["configs"]
    assert (row["value"], row["source"], row["type"]) == ("604800000", "DEFAULT_CONFIG", "long")


def test_a_dry_run_says_what_a_policy_would_remove(kompakt: TypedCommands) -> None:
    kompakt.told("topics", "create", "events")
    kompakt.told("produce", "events", "--key-separator", ":", given="a:1\na:2\nb:1\n")
    kompakt.told("produce", "events", given="without a key\n")
    typed = ["configs", "set", "--topic", "events", "--dry-run"]

    compacted = kompakt.told(*typed, "cleanup.policy=compact")
    deleted = kompakt.told(*typed, "retention.bytes=0")
    sooner = kompakt.told(*typed, "segment.ms=60000")
    again = kompakt.json(*typed, "cleanup.policy=compact")

    assert "topic events: the broker would accept this; nothing was changed\n" in compacted
    assert "compaction would drop 1 record and free" in compacted, compacted
    assert "of 4 records" in compacted
    assert "batches that have a record without a key will be refused" in compacted
    (row,) = [line.split() for line in compacted.splitlines() if line.startswith("events-0")]
    assert row[1] == "4"
    assert "retention would delete 4 records" in deleted, deleted
    assert "1 by size" in deleted
    assert "no record goes because of it" in sooner
    (part,) = again["preview"]
    assert part["preview"]["compaction"]["plan"]["dies"]["superseded"]["records"] == 1
    assert (again["is_changed"], again["preview_error"]) == (False, None)
    unset = kompakt.told("configs", "unset", "--topic", "events", "cleanup.policy", "--dry-run")
    assert "no record goes because of it" in unset
    nowhere = kompakt.run(*typed, "cleanup.policy=compact", "--url", "http://127.0.0.1:1")
    assert nowhere.returncode == 0
    assert "warning: what it would remove is not known: no broker answers" in nowhere.stderr
    kompakt.told("topics", "delete", "events", "--yes")


def test_a_change_that_does_harm_is_made_and_warned_of(kompakt: TypedCommands) -> None:
    typed = ["configs", "set", "--topic", "orders", "cleanup.policy=compact"]
    warning = "warning: with min.cleanable.dirty.ratio=0 each rolled segment causes a pass"

    for options in (["--dry-run"], []):
        done = kompakt.run(*typed, "min.cleanable.dirty.ratio=0", *options)
        assert (done.returncode, warning in done.stderr) == (0, True), done
    assert kompakt.json(*typed)["warnings"]
    kompakt.told("configs", "unset", "--topic", "orders", "min.cleanable.dirty.ratio")
    assert kompakt.json(*typed)["warnings"] == []
    kompakt.told("configs", "unset", "--topic", "orders", "cleanup.policy")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["describe"], 2, "choose one of --topic T, --broker, --all-brokers and --loggers"),
        (["describe", "--broker", "--topic", "orders"], 2, "choose one of --topic T"),
        (["describe", "--topic", "nope"], 1, "there is no topic nope; kompakt topics list"),
        (["set", "--topic", "nope", "retention.ms=1"], 1, "there is no topic nope"),
        (["set", "--topic", "orders", "retention.mss=1"], 1, "has no setting retention.mss"),
        (["set", "--topic", "orders"], 2, "nothing to set"),
        (["set", "--topic", "orders", "retention.ms"], 2, "retention.ms: write NAME=VALUE"),
        (["set", "--broker", "log.dirs=x"], 1, "nothing was changed"),
        (["set", "--all-brokers", "nonsense=1"], 1, "nonsense"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_an_exit_code(
    kompakt: TypedCommands, arguments: list[str], code: int, sentence: str
) -> None:
    assert sentence in kompakt.refused("configs", *arguments, code=code)
