"""The Java client, two releases of it, each in a class path of its own.

One small program (`tests/conformance/java/Conformance.java`) is compiled once, against the older
release, into the cache folder; it runs with either.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from pipeline.jars import cache_folder, jars, require_command
from tests.harness.client_record import ConsumedRecord, KeyedRecord, pack_records, unpack_records

SOURCES = Path(__file__).resolve().parents[1] / "conformance" / "java"
RELEASES = ("3.9", "4.3")
SECONDS_MAX = 120


class JavaClient:
    """`java-3.9` or `java-4.3`.

    Raises JarsUnavailable, with a sentence that says what to install, where it cannot be had.
    """

    __slots__ = ("_command", "name")

    def __init__(self, release: str) -> None:
        self.name = f"java-{release}"
        class_path = [compiled(), *jars(SOURCES / f"kafka-{release}")]
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
        joined = os.pathsep.join(str(path) for path in class_path)
        self._command = ["java", *options, "-cp", joined, "Conformance"]

    def produce(
        self, bootstrap: str, codecs: Mapping[str, str], records: Iterable[KeyedRecord]
    ) -> None:
        """Send the records to every topic of `codecs`, with its codec; all are acknowledged."""
        pairs = [f"{topic}={codec}" for topic, codec in codecs.items()]
        self._run(["produce", bootstrap, *pairs], pack_records(records))

    def consume(self, bootstrap: str, topics: Sequence[str]) -> Iterator[ConsumedRecord]:
        """Every record from the start to the end of every partition."""
        with tempfile.TemporaryFile() as output:
            self._run(["consume", bootstrap, *topics], b"", output)
            output.seek(0)
            yield from unpack_records(output)

    def follow(self, bootstrap: str, topic: str, count: int) -> subprocess.Popen[str]:
        """A consumer that goes on until it has had `count` records; it prints their offsets."""
        command = [*self._command, "follow", bootstrap, topic, str(count)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def admin(self, bootstrap: str, lines: Sequence[str]) -> list[str]:
        """Run the verbs (see Conformance.java); one answer a line."""
        with tempfile.TemporaryFile() as output:
            self._run(["admin", bootstrap], "\n".join(lines).encode(), output)
            output.seek(0)
            return output.read().decode().splitlines()

    def _run(self, arguments: list[str], given: bytes, output: IO[bytes] | None = None) -> None:
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
            stdin.write(given)
            stdin.seek(0)
            code = subprocess.run(
                [*self._command, *arguments],
                stdin=stdin,
                stdout=output or subprocess.DEVNULL,
                stderr=stderr,
                timeout=SECONDS_MAX,
                check=False,
            ).returncode
            stderr.seek(0)
            said = stderr.read().decode(errors="replace")
        assert code == 0, f"{self.name} {arguments[0]} ended with {code}:\n{said[-4000:]}"


def compiled() -> Path:
    """The folder of the compiled program, one for each state of its source."""
    require_command("javac", "openjdk-17-jdk-headless")
    source = SOURCES / "Conformance.java"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / "java" / digest
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        class_path = os.pathsep.join(str(jar) for jar in jars(SOURCES / "kafka-3.9"))
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            staged = Path(scratch) / "classes"
            command = ["javac", "-Xlint:-options", "--release", "17", "-cp", class_path]
            subprocess.run([*command, "-d", str(staged), str(source)], check=True)
            put_in_place(staged, folder)
    return folder


def put_in_place(staged: Path, folder: Path) -> None:
    """Rename; where another process was first, its classes are of the same source."""
    try:
        staged.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
