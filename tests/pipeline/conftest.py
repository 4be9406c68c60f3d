from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

collect_ignore = [] if os.environ.get("KOMPAKT_CLEAN_KILLS") else ["test_clean_kills.py"]
"""Each kill of Spark costs a start of it, half a minute: they are the soak's."""


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
