"""`kompakt pipeline clean` against a real broker, on real Spark."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.harness.batches_on_disk import batches_on_disk
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.dirty_topics import CODECS, MINE, REMOTE, fill, fill_with_transactions
from tests.harness.typed_commands import TypedCommands

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def cleaned(
    broker: BrokerProcess,
    targets: Sequence[str],
    sessions: Callable[[], AbstractContextManager[SparkSession]],
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, dict[str, Any]]:
    """The exit code of the job, and its answer."""
    from pipeline.cleaning.job import clean

    broker.metrics()  # its HTTP endpoint opens a moment after its listener
    code = asyncio.run(
        clean(
            f"http://127.0.0.1:{broker.http_port}",
            targets,
            sessions,
            token=(broker.data_dir / "remote-cleaning.token").read_text().strip(),
            log_dirs={},
            as_json=True,
        )
    )
    return code, json.loads(capsys.readouterr().out)


def test_spark_leaves_what_the_broker_s_own_cleaner_leaves(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = Random(21)
    with BrokerProcess(tmp_path / "spark", REMOTE) as broker:
        for topic in ("plain", "transactional"):
            create_topic(broker.bootstrap_servers, topic, partitions=2, config=MINE)
        fill(broker, "plain", random, codecs=CODECS)
        fill_with_transactions(broker, "transactional", random)
        broker.stop()
        shutil.copytree(broker.data_dir, tmp_path / "local" / "data")
        broker.start()

        code, told = cleaned(
            broker,
            ["plain", "transactional-0", "transactional"],
            lambda: nullcontext(session),
            capsys,
        )

        assert [code, told["is_done"]] == [0, True], told
        assert len(told["partitions"]) == 4, "each once"
        for part in told["partitions"]:
            assert part["report"]["records_after"] < part["report"]["records_before"]
            assert part["report"]["sidecars_built"] > 0
    with BrokerProcess(tmp_path / "local", REMOTE) as other:
        for topic in ("plain", "transactional"):
            TypedCommands(other).json("compact", "now", topic)

    for topic in ("plain", "transactional"):
        for number in range(2):
            ours = batches_on_disk(broker.data_dir, topic, number)
            assert ours == batches_on_disk(other.data_dir, topic, number)
    assert not list(broker.data_dir.glob("leases/*"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), REMOTE) as started:
        yield started


def topic_to_clean(broker: BrokerProcess, name: str) -> str:
    policy = {"cleanup.policy": "compact,delete"}
    create_topic(broker.bootstrap_servers, name, config=MINE | policy)
    fill(broker, name, Random(name), codecs=("zstd",))
    return name


def test_what_happens_to_a_log_before_the_commit_fails_its_commit_with_a_sentence(
    session: SparkSession, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = [topic_to_clean(broker, name) for name in ("untouched", "shortened", "deleted")]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    @contextmanager
    def meanwhile() -> Iterator[SparkSession]:
        yield session
        for done in admin.delete_records([TopicPartition("shortened", 0, 600)]).values():
            done.result(20)
        admin.delete_topics(["deleted"])["deleted"].result(20)

    code, told = cleaned(broker, topics, meanwhile, capsys)

    assert code == 1
    errors = {part["topic"]: part["error"] for part in told["partitions"]}
    assert errors["untouched"] is None
    assert re.search("was removed|no longer in the log", errors["shortened"])
    assert errors["deleted"] == "there is no topic deleted"


def test_a_log_that_is_deleted_while_spark_reads_it_fails_alone(
    session: SparkSession, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = [topic_to_clean(broker, name) for name in ("stays", "goes")]

    @contextmanager
    def before() -> Iterator[SparkSession]:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.delete_topics(["goes"])["goes"].result(20)
        yield session

    code, told = cleaned(broker, topics, before, capsys)

    assert code == 1
    assert [part["state"] for part in told["partitions"]] == ["done", "failed"]


def test_after_a_kill_of_the_broker_its_own_cleaner_has_the_log(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerProcess(tmp_path, REMOTE) as broker:
        topic = topic_to_clean(broker, "killed")

        @contextmanager
        def meanwhile() -> Iterator[SparkSession]:
            yield session
            broker.kill()
            broker.start()
            broker.metrics()

        code, told = cleaned(broker, [topic], meanwhile, capsys)

        assert (code, told["partitions"][0]["state"]) == (1, "failed")
        assert "no lease" in told["partitions"][0]["error"]
        assert not list(broker.data_dir.glob("leases/*"))
        (part,) = TypedCommands(broker).json("compact", "now", topic)["partitions"]
        assert part["report"]["records_after"] < part["report"]["records_before"]
