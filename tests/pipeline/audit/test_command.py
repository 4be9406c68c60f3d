"""`kompakt pipeline audit` over real logs: a backup of segment files, a topic, a broker's own word."""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.typed_commands import TypedCommands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

TOPIC, VERSIONED = "orders", "versioned"
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1.0",
    "delete.retention.ms": "0",
}
TIME_MS = 1_700_000_000_000
DELETED_MS = time.time_ns() // 1_000_000
"""When the tombstones were written: just now."""
KEYS = 20


class Shop:
    """A broker with a topic that was cleaned, and with what it was before."""

    def __init__(self, broker: BrokerProcess, backup: Path) -> None:
        self.broker = broker
        self.backup = backup
        """The topic's folder, before anything was cleaned."""

    def topic(self, name: str = TOPIC) -> str:
        return f"{self.broker.bootstrap_servers}/{name}"

    def url(self, name: str = TOPIC) -> str:
        return f"http://127.0.0.1:{self.broker.http_port}/{name}"

    def folder(self, name: str = TOPIC) -> Path:
        (found,) = self.broker.data_dir.glob(f"{name}.*")
        return found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        made = Shop(broker, tmp_path_factory.mktemp("backup") / "orders")
        for name in (TOPIC, "wrong"):
            create_topic(broker.bootstrap_servers, name, partitions=2, config=CONFIG)
            sell(broker, name)
        shutil.copytree(made.folder(), made.backup.with_name(made.folder().name))
        made.backup = made.backup.with_name(made.folder().name)
        commands = TypedCommands(broker)
        # The second pass drops the tombstones.
        for name in (TOPIC, "wrong", TOPIC):
            commands.told("compact", "now", name)
        yield made


def sell(broker: BrokerProcess, topic: str) -> None:
    """Transactions that commit and abort, over both partitions, and tombstones at the end."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": topic,
            "compression.type": "zstd",
        }
    )
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        for key in range(KEYS):
            value = b"%d of %d" % (number, key)
            if (topic, number, key) == ("wrong", 9, 7):
                value = b"another"
            send(producer, topic, key, value, TIME_MS + number)
        producer.flush(30)
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(30)
    producer.begin_transaction()
    for key in (1, 2, 3):
        send(producer, topic, key, None, DELETED_MS)
    producer.commit_transaction(30)


def send(producer: Producer, topic: str, key: int, value: bytes | None, time_ms: int) -> None:
    producer.produce(
        topic,
        key=b"key-%d" % key,
        value=value,
        partition=key % 2,
        timestamp=time_ms,
        headers=[("n", b"%d" % key), ("null", None)],
    )


@pytest.fixture
def typed(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Commands that run in the session of the tests."""
    import pipeline.spark.session

    @contextmanager
    def ours(*_: object, **__: object) -> Iterator[SparkSession]:
        yield session

    monkeypatch.setattr(pipeline.spark.session, "job_session", ours)
    return Typed()


class Typed:
    """Types `kompakt pipeline audit`."""

    def run(self, original: object, cleaned: object, *options: str) -> Result:
        from pipeline.cli import app

        sides = ["--original", str(original), "--cleaned", str(cleaned)]
        return CliRunner().invoke(app, ["audit", *sides, *options])

    def json(self, original: object, cleaned: object, *options: str) -> dict[str, Any]:
        result = self.run(original, cleaned, "--json", *options)
        assert result.exit_code in (0, 1), result.output
        answer: dict[str, Any] = json.loads(result.stdout)
        assert answer["is_same"] == (result.exit_code == 0)
        return answer


def digests(answer: dict[str, Any], side: str) -> Sequence[str]:
    return [part[side]["digest"] for part in answer["partitions"]]


def test_a_cleaned_topic_is_proved_against_a_backup_of_its_segments(
    typed: Typed, shop: Shop
) -> None:
    answer = typed.json(shop.backup, shop.topic())

    assert answer["is_same"], answer
    for part in answer["partitions"]:
        assert part["original"]["records"] > part["cleaned"]["records"] >= part["cleaned"]["keys"]
        assert part["original"]["digest"] == part["cleaned"]["digest"] != "0" * 32
    assert sum(part["cleaned"]["keys"] for part in answer["partitions"]) == KEYS - 3


def test_a_tombstone_that_went_too_early_for_its_setting_is_named(typed: Typed, shop: Shop) -> None:
    hour = ["--delete-retention-ms", "3600000"]

    answer = typed.json(shop.backup, shop.folder(), *hour)

    assert answer["counts"] == {"tombstone gone early": 3}
    keys = {difference["key"] for difference in answer["differences"]}
    assert keys == {"key-1", "key-2", "key-3"}


def test_a_broker_says_the_same_of_its_log_as_spark_of_the_backup(typed: Typed, shop: Shop) -> None:
    answer = typed.json(shop.backup, shop.url())

    assert answer["is_same"], answer
    assert digests(answer, "original") == digests(answer, "cleaned")
    told = typed.run(shop.backup, shop.url("wrong"))
    assert told.exit_code == 1
    assert "DIFFERENT" in told.stdout
    assert "name both logs instead of a broker's URL to see the keys" in told.stdout


def test_the_differing_keys_are_printed_and_the_exit_code_is_1(typed: Typed, shop: Shop) -> None:
    told = typed.run(shop.backup, shop.folder("wrong"), *NO_RETENTION)

    assert told.exit_code == 1
    lines = told.stdout.splitlines()
    assert lines[-1] == "not the same table: 1 difference in 2 partitions"
    (row,) = [line.split() for line in lines if line.startswith("changed ")]
    assert row[:3] == ["changed", "1", '"key-7"']
    assert row[3] == row[4]
    assert "changed: 1; another value, time or headers than the original has" in told.stdout


VERSIONS = {"compaction.strategy": "header", "compaction.strategy.header": "v"}
NO_RETENTION = ("--delete-retention-ms", "0")


@pytest.fixture(scope="module")
def versioned(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic whose records have versions, cleaned. Returns its folder as it was before."""
    servers = shop.broker.bootstrap_servers
    create_topic(servers, VERSIONED, partitions=2, config={**CONFIG, **VERSIONS})
    producer = Producer({"bootstrap.servers": servers})
    for number in range(200):
        value = b"%d" % number if number % 9 else None
        headers = [("v", struct.pack(">q", number * 7 % 30))]
        key = number % KEYS
        producer.produce(VERSIONED, value, b"key-%d" % key, partition=key % 2, headers=headers)
    assert producer.flush(30) == 0
    backup = tmp_path_factory.mktemp("versioned") / shop.folder(VERSIONED).name
    shutil.copytree(shop.folder(VERSIONED), backup)
    # The second pass drops the tombstones.
    for _ in range(2):
        TypedCommands(shop.broker).told("compact", "now", VERSIONED)
    return backup


def test_a_topic_with_versions_is_ranked_by_them_in_both_logs(
    typed: Typed, shop: Shop, versioned: Path
) -> None:
    for cleaned in (shop.topic(VERSIONED), shop.folder(VERSIONED), shop.url(VERSIONED)):
        answer = typed.json(versioned, cleaned, *NO_RETENTION)

        assert answer["is_same"], answer
        assert answer.get("strategy", "header v") == "header v"
        assert digests(answer, "original") == digests(answer, "cleaned")
        assert "0" * 32 not in digests(answer, "original")


def test_the_report_names_the_strategy_of_versions_alone(
    typed: Typed, shop: Shop, versioned: Path
) -> None:
    by_versions = typed.run(versioned, shop.folder(VERSIONED), *NO_RETENTION)
    by_offset = typed.run(shop.backup, shop.folder(), *NO_RETENTION)

    assert by_versions.stdout.splitlines()[2] == "by:       header v"
    assert "by: " not in by_offset.stdout


def test_a_named_strategy_is_preferred_to_the_topics(
    typed: Typed, shop: Shop, versioned: Path
) -> None:
    answer = typed.json(versioned, shop.topic(VERSIONED), "--strategy", "offset")

    assert answer["strategy"] == "offset"
    assert answer["counts"].keys() & {"lost", "revived"}


def test_a_folder_without_sidecars_or_with_others_needs_a_named_strategy(
    typed: Typed, shop: Shop, versioned: Path, tmp_path: Path
) -> None:
    copy = tmp_path / shop.folder(VERSIONED).name
    shutil.copytree(shop.folder(VERSIONED), copy)
    one, other = copy.rglob("*.keys")
    by_offset = next(shop.folder().rglob("*.keys"))
    shutil.copyfile(by_offset, one)

    told = typed.run(versioned, copy, *NO_RETENTION)
    assert told.exit_code == 1
    assert "has key sidecars by header v and offset: give its --strategy" in told.stderr

    one.unlink()
    other.unlink()
    for cleaned in (copy, shop.folder(VERSIONED)):
        answer = typed.json(versioned, cleaned, *NO_RETENTION, "--strategy", "header v")
        assert answer["is_same"], answer


def test_a_strategy_that_is_none_and_headers_that_are_left_out_are_refused(
    typed: Typed, shop: Shop, versioned: Path
) -> None:
    told = typed.run(versioned, shop.topic(VERSIONED), "--strategy", "newest")
    assert told.exit_code == 2
    assert "'newest' is none of offset, timestamp and 'header NAME'" in told.stderr

    told = typed.run(versioned, shop.topic(VERSIONED), "--option", "includeHeaders=false")
    assert told.exit_code == 1
    assert "ranked by header v: leave out --option includeHeaders" in told.stderr


@pytest.mark.parametrize(
    ("original", "cleaned", "sentence"),
    [
        ("/nowhere", "/nowhere", "is no folder, no HOST:PORT/TOPIC"),
        ("http://a:1/t", "http://b:1/t", "both sides are brokers' digests"),
    ],
)
def test_a_side_that_is_none_is_refused_in_a_sentence(
    typed: Typed, original: str, cleaned: str, sentence: str
) -> None:
    told = typed.run(original, cleaned)

    assert told.exit_code == 2
    assert sentence in told.stderr


def test_a_topic_that_is_not_there_is_said(typed: Typed, shop: Shop) -> None:
    told = typed.run(shop.backup, shop.topic("nothing"))

    assert told.exit_code == 1
    assert "nothing at 127.0.0.1" in told.stderr
