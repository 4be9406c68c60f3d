from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.spark.jars import has_iceberg
from tests.pipeline.table_kinds import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOAKED = {
    "test_clean_kills.py": "KOMPAKT_CLEAN_KILLS",
    "tables/test_table_histories.py": "KOMPAKT_TABLE_HISTORIES",
    "test_delta_upkeep.py": "KOMPAKT_SOAK",
    "test_pipeline_page.py": "KOMPAKT_SOAK",
    "test_company_page.py": "KOMPAKT_SOAK",
    "test_recipes_page.py": "KOMPAKT_SOAK",
    "spark/test_spark_submit.py": "KOMPAKT_SOAK",
    "tables/test_captured_changes.py": "KOMPAKT_SOAK",
    "load/test_load_kills.py": "KOMPAKT_SOAK",
}
"""Files of the soak only, by the variable that asks for them: Spark takes half a minute for each start
and for each first use of a part of Delta."""
assert all((Path(__file__).parent / file).exists() for file in SOAKED)
LITTLE_DATA = {
    # Compiling takes longer than these rows, and so does a new plan after each stage.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
JAVA_FOR_LITTLE_DATA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Tests on Spark take two thirds of the time so. The soak and those on Spark 4.1 run as users do."""
collect_ignore = [file for file, variable in SOAKED.items() if not os.environ.get(variable)]
if not has_iceberg():
    collect_ignore.append("tables/formats/test_iceberg_table.py")


@pytest.fixture(scope="session", autouse=True)
def _log_formats() -> None:
    """Stop PySpark's loggers from changing the format of a handler that is not theirs.

    After a failed query they no longer propagate. Pytest then adds its own handler to them, and they
    would turn all that later tests capture into JSON.
    """
    with suppress(ImportError):
        from pyspark.logger import PySparkLogger

        PySparkLogger.addHandler = logging.Logger.addHandler


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with all our jars, one JVM for all tests; skipped, with a reason, without Java."""
    from pipeline.spark.jars import ALL_PINS, ICEBERG, JarsUnavailable
    from pipeline.spark.session import log_option, start_session
    from pipeline.spark.session_options import SessionOptions

    pins = (*ALL_PINS, ICEBERG) if has_iceberg() else ALL_PINS
    conf = {} if os.environ.get("KOMPAKT_SOAK") else {"spark.driver.memory": "1g"}
    if conf and not has_iceberg():
        java = f"{log_option()} {JAVA_FOR_LITTLE_DATA}"
        conf |= LITTLE_DATA | {"spark.driver.extraJavaOptions": java}
    if has_iceberg():
        conf |= {
            f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{CATALOG}.type": "hadoop",
            f"spark.sql.catalog.{CATALOG}.warehouse": str(tmp_path_factory.mktemp("lake")),
        }
    try:
        started = start_session("tests", SessionOptions(master="local[2]", conf=conf), pins=pins)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    yield started
    started.stop()
