from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """Spark with the Kafka source, one JVM for all tests; skipped, with a reason, without Java."""
    from pipeline.jars import JarsUnavailable
    from pipeline.spark import start_session

    try:
        started = start_session("tests")
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    yield started
    started.stop()
