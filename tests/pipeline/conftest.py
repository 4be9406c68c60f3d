from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
