"""With a stand-in for Maven on the PATH, for the faults that the real one shows rarely."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pipeline.spark import jars as module
from pipeline.spark.jars import (
    CONNECTOR,
    DELTA,
    ICEBERG,
    JarsUnavailable,
    has_iceberg,
    jars,
    pins_for_this_spark,
)

CONTENT = b"a jar"


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    folder = tmp_path / "pins"
    folder.mkdir()
    (folder / "pom.xml").write_text("<project/>")
    digest = hashlib.sha256(CONTENT).hexdigest()
    (folder / "jars.sha256").write_text(f"{digest}  one.jar\n")
    return folder


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH, with a `java`; the cache is a temporary folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    executable(folder / "java", "exit 0")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def executable(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    path.chmod(0o755)


def maven_that_delivers(path: Path, content: bytes) -> None:
    """It counts its runs in a file beside it."""
    executable(
        path / "mvn",
        f"""echo run >> {path}/runs
        for word in "$@"; do case "$word" in -DoutputDirectory=*) out="${{word#*=}}";; esac; done
        mkdir -p "$out" && printf '%s' '{content.decode()}' > "$out/one.jar" """,
    )


def runs(path: Path) -> int:
    return len((path / "runs").read_text().splitlines())


def quiet(_: str) -> None:
    """Say nothing."""


def test_jars_are_fetched_once_with_a_line_that_says_so(path: Path, pins: Path) -> None:
    maven_that_delivers(path, CONTENT)
    said: list[str] = []

    (first,) = jars(pins, say=said.append)
    (second,) = jars(pins, say=said.append)

    assert first == second
    assert first.read_bytes() == CONTENT
    assert runs(path) == 1
    assert said[0].startswith("Fetching 1 jar (pins) through Maven, once")


def test_a_jar_that_was_damaged_on_disk_is_fetched_again(path: Path, pins: Path) -> None:
    maven_that_delivers(path, CONTENT)
    (jar,) = jars(pins, say=quiet)
    jar.write_bytes(b"damaged")

    (again,) = jars(pins, say=quiet)

    assert again.read_bytes() == CONTENT
    assert runs(path) == 2


def test_what_is_not_pinned_is_not_used(path: Path, pins: Path, tmp_path: Path) -> None:
    maven_that_delivers(path, b"another jar")

    with pytest.raises(JarsUnavailable, match=r"not what .* pins"):
        jars(pins, say=quiet)

    assert list((tmp_path / "cache/kompakt/jars").iterdir()) == []


def test_a_changed_pin_has_a_folder_of_its_own(path: Path, pins: Path) -> None:
    maven_that_delivers(path, CONTENT)
    (before,) = jars(pins, say=quiet)

    (pins / "pom.xml").write_text("<project><!-- newer --></project>")
    (after,) = jars(pins, say=quiet)

    assert before.parent != after.parent


def test_a_missing_maven_is_one_sentence_that_says_what_to_install(pins: Path) -> None:
    with pytest.raises(JarsUnavailable, match=r"`mvn` is missing: .*apt-get install maven`\.$"):
        jars(pins, say=quiet)


def test_a_missing_java_is_one_sentence_that_says_what_to_install(path: Path, pins: Path) -> None:
    (path / "java").unlink()

    with pytest.raises(JarsUnavailable, match=r"`java` is missing: .*openjdk-17-jre-headless`\.$"):
        jars(pins, say=quiet)


def test_mavens_first_error_is_what_the_user_is_told(path: Path, pins: Path) -> None:
    executable(path / "mvn", "echo '[INFO] x'; echo '[ERROR] no such artifact'; exit 1")

    with pytest.raises(JarsUnavailable, match=r"no such artifact$"):
        jars(pins, say=quiet)


def test_another_release_of_spark_has_pins_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed_spark", lambda: "4.1.1")
    of_release = CONNECTOR.parent / "spark_4_1"

    assert pins_for_this_spark(CONNECTOR) == of_release / "connector"
    assert pins_for_this_spark(DELTA) == of_release / "delta"
    assert pins_for_this_spark(ICEBERG) == of_release / "iceberg"
    assert has_iceberg()


@pytest.mark.parametrize("spark", ["4.2.0", ""])
def test_where_a_release_has_no_runtime_of_iceberg_the_message_names_one_that_has(
    spark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "installed_spark", lambda: spark)

    assert pins_for_this_spark(CONNECTOR) == CONNECTOR
    assert not has_iceberg()
    with pytest.raises(
        JarsUnavailable, match=r"^Iceberg has no jars .*pip install pyspark==4\.1\.1"
    ):
        pins_for_this_spark(ICEBERG)
