"""`kompakt pipeline` as a program of spark-submit, on a cluster of two workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from pipeline.spark.jars import AVRO, CONNECTOR, DELTA, JarsUnavailable, jars, pins_for_this_spark
from tests.harness.broker_process import CHECKOUT, BrokerProcess
from tests.harness.clients import create_topic, deliver_all
from tests.harness.spark_cluster import HOME, SparkCluster

pytestmark = pytest.mark.spark

SECONDS_MAX = 240
KEYS = 50


def test_a_table_job_runs_on_the_cluster_and_with_the_jars_that_spark_submit_names(
    tmp_path: Path,
) -> None:
    try:
        pins = (CONNECTOR, DELTA, AVRO)
        named = ",".join(str(jar) for each in pins for jar in jars(pins_for_this_spark(each)))
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    table = tmp_path / "table"
    with (
        BrokerProcess(tmp_path / "broker") as broker,
        SparkCluster(tmp_path / "cluster") as cluster,
    ):
        create_topic(
            broker.bootstrap_servers, "orders", partitions=2, config={"cleanup.policy": "compact"}
        )
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        deliver_all(producer, "orders", [(b"%d" % (at % KEYS), b"%d" % at) for at in range(200)])
        submit = ["bash", str(HOME / "bin" / "spark-submit"), *cluster.driver_options()]
        program = [str(CHECKOUT / "examples" / "kompakt_pipeline.py"), "table", "stream"]
        job = ["-b", broker.bootstrap_servers, "--topic", "orders", "--table", str(table)]
        done = subprocess.run(
            [*submit, "--jars", named, *program, *job],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert f"{KEYS} keys in {table}\n" in done.stdout
        assert cluster.has_run()
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert {(row["key"], row["value"]) for row in rows} == {
        (b"%d" % key, b"%d" % (150 + key)) for key in range(KEYS)
    }
