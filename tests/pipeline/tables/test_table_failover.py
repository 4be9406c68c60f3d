"""A table that follows a topic continues after its broker was killed and a standby has taken over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.test_standby_kills import INTERNAL
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic
from tests.harness.failover_clients import Writer
from tests.harness.standby_process import WholeStandby
from tests.harness.table_driver import TableDriver, Victim
from tests.pipeline.table_model import WHEN, Record, model
from tests.pipeline.tables.test_table_histories import follow_to_the_end, found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
PARTITIONS = 2
KEYS = 60

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def test_a_table_stream_goes_on_at_the_standby_that_has_taken_over(
    session: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    with (
        BrokerProcess(tmp_path / "broker", INTERNAL) as source,
        WholeStandby(tmp_path / "standby", source.bootstrap_servers, INTERNAL) as standby,
    ):
        servers = f"{source.bootstrap_servers},{standby.bootstrap_servers}"
        create_topic(source.bootstrap_servers, "orders", partitions=PARTITIONS, config=COMPACTED)
        writer = Writer(servers, "orders", partitions=PARTITIONS, keys=KEYS, seed=1)
        writer.start()
        with TableDriver(servers, "orders", table, tmp_path / "driver.log") as driver:
            driver.start()
            driver.wait_for_commits(2)
            standby.wait_until_level(copying=PARTITIONS)
            status, report = standby.promote()
            assert (status, report["missing"]) == (200, []), report
            source.kill()
            driver.wait_for_commits(2)
            driver.kill(Victim.BOTH)
        writer.hold()
        writer.end()
        follow_to_the_end(session, standby.bootstrap_servers, table)
        assert found(session, table) == model(records_of(writer))


def records_of(writer: Writer) -> list[Record]:
    """Returns what was acknowledged; nothing that a producer gave up is there."""
    assert not writer.produced.uncertain
    acknowledged = writer.produced.acknowledged.items()
    return [(writer.topic, *place, WHEN, *record) for place, record in acknowledged]
