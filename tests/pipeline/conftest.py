from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOAKED = {
    "test_clean_kills.py": "KOMPAKT_CLEAN_KILLS",
    "tables/test_table_histories.py": "KOMPAKT_TABLE_HISTORIES",
    "test_delta_upkeep.py": "KOMPAKT_SOAK",
    "test_pipeline_page.py": "KOMPAKT_SOAK",
    "test_company_page.py": "KOMPAKT_SOAK",
    "tables/test_captured_changes.py": "KOMPAKT_SOAK",
    "load/test_load_kills.py": "KOMPAKT_SOAK",
}
"""Files of the soak only, by the variable that asks for them: Spark takes half a minute for each start
and for each first use of a part of Delta."""
assert all((Path(__file__).parent / file).exists() for file in SOAKED)
collect_ignore = [file for file, variable in SOAKED.items() if not os.environ.get(variable)]


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
def session() -> Iterator[SparkSession]:
    """Spark with all our jars, one JVM for all tests; skipped, with a reason, without Java."""
    from pipeline.spark.jars import ALL_PINS, JarsUnavailable
    from pipeline.spark.session import start_session

    try:
        started = start_session("tests", pins=ALL_PINS)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    yield started
    started.stop()
