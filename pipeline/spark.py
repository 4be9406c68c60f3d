"""A small local Spark session that has the Kafka source on its class path."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pipeline.jars import CONNECTOR, JarsUnavailable, jars, require_command

SHUFFLE_PARTITIONS = 4
"""Spark's default of 200 costs more in empty tasks than a local job does in work."""


def start_session(app_name: str) -> SparkSession:
    """A session on two local threads, its ports on 127.0.0.1 only, without a web UI.

    Raises:
        JarsUnavailable: Java is missing or too old, or the connector cannot be fetched.
    """
    require_command("java", "openjdk-17-jre-headless")
    class_path = ",".join(str(jar) for jar in jars(CONNECTOR))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName(app_name)
    for name, value in settings(class_path).items():
        builder = builder.config(name, value)
    try:
        with warnings.catch_warnings():
            # It warns of pandas 3; nothing here goes through pandas.
            warnings.simplefilter("ignore", FutureWarning)
            session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise JarsUnavailable(
            f"Spark does not start ({error}): it needs Java 17 or newer."
        ) from error
    session.sparkContext.setLogLevel("OFF")
    return session


def settings(class_path: str) -> dict[str, str]:
    """What differs from Spark's defaults."""
    return {
        "spark.jars": class_path,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "spark-warehouse"),
        "spark.driver.extraJavaOptions": log_option(),
        # A micro-batch that fails is repeated by the restart, from the checkpoint.
        "spark.sql.streaming.stopTimeout": "30s",
    }


def log_option() -> str:
    """Errors come as exceptions, so the JVM logs nothing less."""
    return f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
