from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOAKED = {
    "KOMPAKT_CLEAN_KILLS": "test_clean_kills.py",
    "KOMPAKT_TABLE_HISTORIES": "test_table_histories.py",
}
"""Each kill of Spark costs a start of it, half a minute: they are the soak's."""
collect_ignore = [file for count, file in SOAKED.items() if not os.environ.get(count)]


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """Spark with all our jars, one JVM for all tests; skipped, with a reason, without Java."""
    from pipeline.jars import ALL_PINS, JarsUnavailable
    from pipeline.spark import start_session

    try:
        started = start_session("tests", pins=ALL_PINS)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    yield started
    started.stop()
