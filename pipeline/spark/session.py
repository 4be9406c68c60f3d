"""A job's Spark session: on the user's own jars or packages, or on those that Maven fetched once."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from pipeline.spark.jars import (
    CONNECTOR,
    DELTA,
    ICEBERG,
    JarsUnavailable,
    jars,
    pins_for_this_spark,
    require_command,
)
from pipeline.spark.job import ENDING_S_MAX, exit_code_of_spark
from pipeline.spark.job_progress import shown_on_terminal
from pipeline.spark.session_options import SessionOptions

LOCAL_MEMORY_MIN = 1 << 30
SHUFFLE_PARTITIONS = 4
"""With Spark's default of 200, the empty tasks cost more than the work of a local job."""
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
ICEBERG_EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
"""The environment variable in which spark-submit tells its Python process where Spark is."""
LOCAL = SessionOptions(master="local[2]")


@contextlib.contextmanager
def job_session(
    app_name: str, options: SessionOptions, *, pins: Collection[Path] = (CONNECTOR,)
) -> Iterator[SparkSession]:
    """Start a session for one job, show its progress on a terminal, and stop Spark at the end.

    Print the result after this context: within it, the progress line may overwrite it.
    """
    silence_py4j()
    with shown_on_terminal() as progress:
        session = start_session(app_name, options, pins=pins)
        if progress is not None:
            progress.follow(session)
        try:
            yield session
        finally:
            if progress is not None:
                progress.end()
            stop(session)


def stop(session: SparkSession) -> None:
    """Stop Spark, unless its process ends by itself: what broke off says why."""
    try:
        session.stop()
    except (OSError, Py4JError):
        if exit_code_of_spark(ENDING_S_MAX) is None:
            raise


def silence_py4j() -> None:
    """Turn off Py4J's logs: what it logs with a stack trace also arrives as an exception.

    These are failed batches and, on the root logger, Ctrl-C.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)


def start_session(
    app_name: str, options: SessionOptions = LOCAL, *, pins: Collection[Path] = (CONNECTOR,)
) -> SparkSession:
    """Start a session with the jars of `pins` on its class path, or with the user's own instead.

    With `DELTA` among the pins it enables Delta's SQL extension and catalog.

    Raises:
        JarsUnavailable: Java is missing or too old, or the jars cannot be fetched.
    """
    options = below_spark_submit(options)
    require_command("java", "openjdk-17-jre-headless")
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings(options, pins).items():
        builder = builder.config(name, value)
    try:
        with warnings.catch_warnings(), environment(options):
            # PySpark warns about pandas 3, but no code here uses pandas.
            warnings.simplefilter("ignore", FutureWarning)
            session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise JarsUnavailable(
            f"Spark does not start ({error}): it needs Java 17 or newer."
        ) from error
    if "spark.log.level" not in options.conf:
        session.sparkContext.setLogLevel("OFF")
        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
            PySparkLogger.getLogger(name).disabled = True
    return session


def below_spark_submit(options: SessionOptions) -> SessionOptions:
    """Returns the options together with those of spark-submit, if that has started this process.

    Spark is running already then, with the jars of spark-submit.
    """
    if GATEWAY_PORT not in os.environ:
        return options
    SparkContext._ensure_initialized()
    given = {name: value for name, value in SparkConf().getAll() if name != "spark.app.name"}
    return replace(options, conf={"spark.jars": "", **given, **options.conf})


def settings(options: SessionOptions, pins: Collection[Path]) -> dict[str, str]:
    """Returns the settings that differ from Spark's defaults; the user's `--conf` wins."""
    said = {
        "spark.master": master_of(options),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": log_option(),
        # The next start repeats a failed micro-batch, from the offsets that the table holds.
        "spark.sql.streaming.stopTimeout": "30s",
        **class_path(options, pins),
        **(local_settings() if is_local(options) else {}),
        **options.conf,
    }
    if DELTA in pins:
        said |= extended(said, DELTA_EXTENSION)
        said.setdefault("spark.sql.catalog.spark_catalog", DELTA_CATALOG)
    if ICEBERG in pins:
        said |= extended(said, ICEBERG_EXTENSION)
    return said


@contextlib.contextmanager
def environment(options: SessionOptions) -> Iterator[None]:
    """Set Spark's environment variables while it starts; processes started later see the old ones.

    On a cluster the user names the Python (`PYSPARK_PYTHON`), as for any job.
    """
    wanted = spark_environment(options, os.environ)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def spark_environment(options: SessionOptions, given: Mapping[str, str]) -> dict[str, str]:
    """Returns a local Spark's address, its workers' interpreter, and the path to our code."""
    named = options.conf.get("spark.pyspark.python")
    interpreter = {} if named is None else {"PYSPARK_PYTHON": named}
    if not is_local(options):
        return interpreter
    checkout = str(Path(__file__).parents[2])
    paths = [path for path in given.get("PYTHONPATH", "").split(os.pathsep) if path]
    if checkout not in (*paths, sysconfig.get_path("purelib")):
        paths.insert(0, checkout)
    return {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": given.get("PYSPARK_PYTHON", sys.executable),
        **interpreter,
        **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {}),
    }


def master_of(options: SessionOptions) -> str:
    return options.conf.get("spark.master") or options.master or "local[*]"


def is_local(options: SessionOptions) -> bool:
    """Returns whether all of Spark runs in this process."""
    return master_of(options).startswith("local")


def class_path(options: SessionOptions, pins: Collection[Path]) -> dict[str, str]:
    """Returns the class path settings: our jars, or exactly those that the user names."""
    if options.brings_its_own_jars:
        own = {"spark.jars.packages": options.packages, "spark.jars": options.jars}
        return {name: value for name, value in own.items() if value}
    folders = map(pins_for_this_spark, pins)
    return {"spark.jars": ",".join(str(jar) for folder in folders for jar in jars(folder))}


def local_settings() -> dict[str, str]:
    """Returns the settings of a local Spark: ports on 127.0.0.1 only, no web UI."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # All of Spark runs in the driver, for which Spark's default is 1 GB.
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", f"{local_memory_mib()}m"),
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "spark-warehouse"),
        # For the same reason: Delta would read its log in 50 tasks, and list a table's files in 10,000
        # before it deletes old ones.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(SHUFFLE_PARTITIONS),
    }


def local_memory_mib() -> int:
    """Returns the memory of a local Spark: a quarter of the machine's, as Java itself would take."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(max(LOCAL_MEMORY_MIN, total // 4) >> 20)


def extended(said: Mapping[str, str], extension: str) -> dict[str, str]:
    """Returns the setting of an SQL extension together with those that are set already."""
    extensions = [name for name in said.get("spark.sql.extensions", "").split(",") if name]
    if extension not in extensions:
        extensions.append(extension)
    return {"spark.sql.extensions": ",".join(extensions)}


def log_option() -> str:
    """Returns the JVM option for its log: errors arrive as exceptions, so it logs nothing below."""
    return (
        f"-Dlog4j2.configurationFile={(Path(__file__).parents[1] / 'log4j2.properties').as_uri()}"
    )
