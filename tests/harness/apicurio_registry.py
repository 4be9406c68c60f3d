"""An Apicurio Registry, with the API of Confluent's. It keeps its schemas in topics of a broker.

It needs Java 21. `JAVA_HOME` may name one; else each below /usr/lib/jvm is looked at.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.base.processes import running
from pipeline.spark.jars import JarsUnavailable, cache_folder, jars
from tests.harness.broker_process import free_ports
from tests.harness.java_program import OPTIONS, SOURCES, put_in_place

PINS = SOURCES / "apicurio-registry-3.3"
JAVA_RELEASE = 21
START_SECONDS_MAX = 240.0
_RELEASE = re.compile(r'version "(\d+)')


def registry_url(port: int) -> str:
    """Returns the URL of the API for Confluent's clients."""
    return f"http://127.0.0.1:{port}/apis/ccompat/v7"


@contextmanager
def running_registry(bootstrap: str, port: int) -> Iterator[str]:
    """Run a registry on a port. Yields the URL of its API for Confluent's clients.

    Raises:
        JarsUnavailable: Java 21 or Maven is missing, or Maven cannot fetch the archive.
    """
    (management,) = free_ports(1)
    settings = {
        "apicurio.storage.kind": "kafkasql",
        "apicurio.kafkasql.bootstrap.servers": bootstrap,
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": management,
    }
    words = [f"-D{name}={value}" for name, value in settings.items()]
    command = [java_command(), *OPTIONS, *words, "-jar", str(unpacked() / "quarkus-run.jar")]
    with running(command, port, start_seconds_max=START_SECONDS_MAX):
        yield registry_url(port)


def java_command() -> str:
    """Returns a Java that is new enough. Raises JarsUnavailable."""
    homes = [os.environ.get("JAVA_HOME"), *map(str, sorted(Path("/usr/lib/jvm").glob("*")))]
    for command in ("java", *(f"{home}/bin/java" for home in homes if home)):
        try:
            said = subprocess.run(
                [command, "-version"], capture_output=True, text=True, check=False
            )
        except OSError:
            continue
        match = _RELEASE.search(said.stderr)
        if match and int(match[1]) >= JAVA_RELEASE:
            return command
    raise JarsUnavailable(
        f"Apicurio Registry needs Java {JAVA_RELEASE}: install it with"
        f" `apt-get install openjdk-{JAVA_RELEASE}-jre-headless`, or set JAVA_HOME."
    )


def unpacked() -> Path:
    """Returns the folder of the unpacked archive, which is made once. Raises JarsUnavailable."""
    (archive,) = jars(PINS)
    folder = cache_folder() / "apicurio" / archive.parent.name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            staged = Path(scratch) / "registry"
            with tarfile.open(archive) as tar:
                tar.extractall(staged, filter="data")
            put_in_place(staged, folder)
    return folder
