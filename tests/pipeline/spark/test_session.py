"""What a session is asked for, without starting one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pipeline.spark.jars import CONNECTOR, DELTA, ICEBERG, JarsUnavailable
from pipeline.spark.session_options import SessionOptions

pytest.importorskip("pyspark")

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger

from pipeline.spark import session as spark


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the pins whose jars are asked for; nothing is fetched."""
    names: list[str] = []

    def jars(pins: Path) -> tuple[Path, ...]:
        names.append(pins.name)
        return (Path("/jars") / f"{pins.name}.jar",)

    monkeypatch.setattr(spark, "jars", jars)
    return names


def test_the_jars_of_the_pins_are_on_the_class_path() -> None:
    said = spark.settings(SessionOptions(), (CONNECTOR, DELTA))

    assert said["spark.jars"] == "/jars/connector.jar,/jars/delta.jar"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (SessionOptions(packages="io.delta:x:1"), {"spark.jars.packages": "io.delta:x:1"}),
        (SessionOptions(jars="/a.jar,/b.jar"), {"spark.jars": "/a.jar,/b.jar"}),
        (SessionOptions(conf={"spark.jars": "/c.jar"}), {"spark.jars": "/c.jar"}),
    ],
    ids=["packages", "jars", "conf"],
)
def test_ours_stay_away_where_the_user_names_any(
    options: SessionOptions, named: dict[str, str], fetched: list[str]
) -> None:
    said = spark.settings(options, (CONNECTOR,))

    assert fetched == []
    assert {name: said[name] for name in said if name.startswith("spark.jars")} == named


def test_the_users_properties_win_over_ours() -> None:
    said = spark.settings(SessionOptions(conf={"spark.sql.session.timeZone": "CET"}), ())

    assert said["spark.sql.session.timeZone"] == "CET"


def test_only_a_local_session_is_bound_to_the_loopback_address() -> None:
    assert spark.settings(SessionOptions(), ())["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in spark.settings(SessionOptions(master="spark://h:7077"), ())


def test_a_local_spark_has_a_quarter_of_the_memory_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_DRIVER_MEMORY", raising=False)
    pages = {"SC_PHYS_PAGES": 4 << 20, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    assert spark.settings(SessionOptions(), ())["spark.driver.memory"] == "4096m"
    pages["SC_PHYS_PAGES"] = 1 << 18
    assert spark.settings(SessionOptions(), ())["spark.driver.memory"] == "1024m"

    own = SessionOptions(conf={"spark.driver.memory": "7g"})
    assert spark.settings(own, ())["spark.driver.memory"] == "7g"
    assert "spark.driver.memory" not in spark.settings(SessionOptions(master="yarn"), ())
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "3g")
    assert spark.settings(SessionOptions(), ())["spark.driver.memory"] == "3g"


def test_local_workers_are_this_interpreter_and_find_this_code() -> None:
    assert spark.spark_environment(SessionOptions(master="spark://h:7077"), {}) == {}

    local = spark.spark_environment(SessionOptions(), {"PYTHONPATH": "/lib"})
    assert local["PYSPARK_PYTHON"] == sys.executable
    assert local["PYTHONPATH"] == f"{Path(spark.__file__).parents[2]}:/lib"

    own = SessionOptions(conf={"spark.pyspark.python": "/usr/bin/python3.12"})
    assert spark.spark_environment(own, {})["PYSPARK_PYTHON"] == "/usr/bin/python3.12"


def test_icebergs_extension_comes_with_its_jars_beside_that_of_delta(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark, "pins_for_this_spark", lambda pins: pins)
    said = spark.settings(SessionOptions(), (CONNECTOR, DELTA, ICEBERG))

    extensions = f"{spark.DELTA_EXTENSION},{spark.ICEBERG_EXTENSION}"
    assert said["spark.sql.extensions"] == extensions
    assert said["spark.jars"].endswith("/iceberg.jar")


def test_a_logger_of_pyspark_keeps_the_format_of_a_handler_that_pytest_adds_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    format_before = caplog.handler.formatter

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(caplog.handler)
    logger.removeHandler(caplog.handler)

    assert caplog.handler.formatter is format_before


def test_what_is_started_after_spark_finds_the_environment_as_it_was() -> None:
    before = dict(os.environ)

    with spark.environment(SessionOptions()):
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"

    assert dict(os.environ) == before


def test_delta_is_switched_on_only_where_it_is_needed_and_beside_other_extensions() -> None:
    assert "spark.sql.extensions" not in spark.settings(SessionOptions(), (CONNECTOR,))

    own = SessionOptions(conf={"spark.sql.extensions": "a.B"})
    said = spark.settings(own, (CONNECTOR, DELTA))

    assert said["spark.sql.extensions"] == f"a.B,{spark.DELTA_EXTENSION}"
    assert said["spark.sql.catalog.spark_catalog"] == spark.DELTA_CATALOG


def test_without_java_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(JarsUnavailable, match=r"`java` is missing: .*openjdk-17-jre-headless`\.$"):
        spark.start_session("test")


def test_what_spark_submit_says_holds_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = SessionOptions(conf={"spark.sql.session.timeZone": "CET"})
    assert spark.below_spark_submit(mine) is mine

    given = {
        "spark.master": "spark://h:1",
        "spark.app.name": "x",
        "spark.sql.session.timeZone": "UTC",
    }
    monkeypatch.setenv(spark.GATEWAY_PORT, "1")
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda: None)
    monkeypatch.setattr(SparkConf, "getAll", lambda _: list(given.items()))
    monkeypatch.setattr(SparkConf, "__init__", lambda _: None)

    said = spark.settings(spark.below_spark_submit(mine), (CONNECTOR,))
    assert said["spark.master"] == "spark://h:1"
    assert said["spark.sql.session.timeZone"] == "CET"
    assert said["spark.jars"] == ""
    assert "spark.app.name" not in said
    assert "spark.driver.bindAddress" not in said
