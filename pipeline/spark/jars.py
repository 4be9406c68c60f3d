"""Fetches jars with Maven, once: pinned, verified, kept outside the checkout.

A folder of pins holds two committed files: `pom.xml` says what to fetch, `jars.sha256` lists the
expected files (in the form of `sha256sum`). What another release of Spark than ours needs instead lies
in a folder of that release, such as `pipeline/spark_4_1/`. The jars go to
`${XDG_CACHE_HOME:-~/.cache}/kompakt/jars/<folder>-<digest of the pins>/`, so a changed pin never
finds its predecessor's files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from cleaner.rules.text import count_text

CONNECTOR = Path(__file__).parents[1] / "connector"
"""The pins of Spark's Kafka source."""
DELTA = CONNECTOR.with_name("delta")
"""The pins of Delta's table format."""
AVRO = CONNECTOR.with_name("avro")
"""The pins of Spark's Avro functions."""
ICEBERG = CONNECTOR.with_name("iceberg")
"""The pins of Iceberg's runtime, which has not come out for each release of Spark."""
ALL_PINS = tuple(pins for pins in (CONNECTOR, DELTA, AVRO) if pins.is_dir())


class JarsUnavailable(Exception):
    """The jars are not available. The message is one sentence that says what to do about it."""


def pins_for_this_spark(pins: Path) -> Path:
    """Returns the folder that pins the same for the release of PySpark that is installed.

    Raises:
        JarsUnavailable: there are no such jars for it.
    """
    spark = installed_spark()
    release = "_".join(spark.split(".")[:2])
    of_release = pins.parent / f"spark_{release}" / pins.name
    found = of_release if of_release.is_dir() else pins
    if not found.is_dir():
        raise JarsUnavailable(
            f"{pins.name.capitalize()} has no jars for Spark {spark}: install another release"
            " (`pip install pyspark==4.1.1`), or name jars with --packages."
        )
    return found


def has_iceberg() -> bool:
    """Returns whether Iceberg has a runtime for the release of PySpark that is installed."""
    try:
        pins_for_this_spark(ICEBERG)
    except JarsUnavailable:
        return False
    return True


def installed_spark() -> str:
    """Returns PySpark's release, such as `4.1.1`; empty without PySpark."""
    try:
        return str(import_module("pyspark.version").__version__)
    except ImportError:
        return ""


def say_on_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")


def jars(pins: Path, *, say: Callable[[str], None] = say_on_stderr) -> tuple[Path, ...]:
    """Returns the verified jars of `pins`, and fetches them with Maven if they are missing.

    Every call verifies every jar against its pinned sha256: a jar damaged on disk is fetched again.

    Raises:
        JarsUnavailable: Java or Maven is missing, Maven failed, or it delivered files that are not
            pinned.
    """
    expected = read_sums(pins / "jars.sha256")
    folder = cache_folder() / "jars" / f"{pins.name}-{digest_of_pins(pins)}"
    if not holds(folder, expected):
        fetch(pins, folder, expected, say=say)
    return tuple(folder / name for name in sorted(expected))


def cache_folder() -> Path:
    """Returns the folder for files that can be fetched or built again; never in the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kompakt"


def read_sums(path: Path) -> dict[str, str]:
    """Read file names and their sha256, in the form of `sha256sum`."""
    rows = (line.split() for line in path.read_text().splitlines() if line.strip())
    return {name: digest for digest, name in rows}


def digest_of_pins(pins: Path) -> str:
    content = (pins / "pom.xml").read_bytes() + (pins / "jars.sha256").read_bytes()
    return hashlib.sha256(content).hexdigest()[:12]


def holds(folder: Path, expected: Mapping[str, str]) -> bool:
    """Returns whether the folder holds exactly the expected files."""
    if not folder.is_dir():
        return False
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    return found == dict(expected)


def fetch(
    pins: Path, folder: Path, expected: Mapping[str, str], *, say: Callable[[str], None]
) -> None:
    """Let Maven copy the jars into a staging folder, verify them, then rename it into place."""
    require_command("java", "openjdk-17-jre-headless")
    require_command("mvn", "maven")
    folder.parent.mkdir(parents=True, exist_ok=True)
    say(
        f"Fetching {count_text(len(expected), 'jar')} ({pins.name}) through Maven,"
        f" once, into {folder} ..."
    )
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as scratch:
        staged = Path(scratch) / "jars"
        run_maven(pins / "pom.xml", Path(scratch), staged)
        if not holds(staged, expected):
            names = sorted(path.name for path in staged.iterdir()) if staged.is_dir() else []
            raise JarsUnavailable(
                f"Maven delivered {', '.join(names) or 'nothing'} for {pins / 'pom.xml'}, which "
                f"is not what {pins / 'jars.sha256'} pins: nothing of it is used."
            )
        put_in_place(staged, folder, expected)
    size = sum(path.stat().st_size for path in folder.iterdir())
    say(f"Fetched {size / 1e6:.1f} MB in {time.monotonic() - started:.1f} s.")


def require_command(command: str, debian_package: str) -> None:
    """Raise JarsUnavailable, which says what to install, if a command is missing."""
    if shutil.which(command) is None:
        raise JarsUnavailable(
            f"`{command}` is missing: install it with `apt-get install {debian_package}`."
        )


def run_maven(pom: Path, scratch: Path, staged: Path) -> None:
    """Run Maven on a copy of the pom, so that it leaves no files beside the committed one."""
    shutil.copy(pom, scratch / "pom.xml")
    command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    done = subprocess.run(  # noqa: S603
        [*command, f"-DoutputDirectory={staged}"],
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if "[ERROR]" in line]
        reason = errors[0].partition("[ERROR]")[2].strip() if errors else "it gave no reason"
        raise JarsUnavailable(f"Maven could not fetch the jars of {pom}: {reason}")


def put_in_place(staged: Path, folder: Path, expected: Mapping[str, str]) -> None:
    """Rename into place; a folder that another process has finished meanwhile is just as good."""
    if folder.exists() and not holds(folder, expected):
        shutil.rmtree(folder)
    try:
        staged.rename(folder)
    except OSError:
        if not holds(folder, expected):
            raise
