"""The Java client in two releases, each with its own class path.

One small program (`tests/conformance/java/Conformance.java`) is compiled once, against the older
release, into the cache folder; it runs with both.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO

from pipeline.spark.jars import jars
from tests.harness.client_record import ConsumedRecord, KeyedRecord, pack_records, unpack_records
from tests.harness.java_program import SOURCES, compiled, java_command

RELEASES = ("3.9", "4.3")
SECONDS_MAX = 120


class JavaClient:
    """`java-3.9` or `java-4.3`.

    Raises JarsUnavailable, with a message that says what to install, if it is unavailable.
    """

    __slots__ = ("_command", "name")

    def __init__(self, release: str) -> None:
        self.name = f"java-{release}"
        program = compiled("Conformance", jars(SOURCES / f"kafka-{RELEASES[0]}"))
        class_path = [program, *jars(SOURCES / f"kafka-{release}")]
        self._command = java_command("Conformance", class_path)

    def produce(
        self, bootstrap: str, codecs: Mapping[str, str], records: Iterable[KeyedRecord]
    ) -> None:
        """Send the records to every topic of `codecs`, with its codec; all must be acknowledged."""
        pairs = [f"{topic}={codec}" for topic, codec in codecs.items()]
        self._run(["produce", bootstrap, *pairs], pack_records(records))

    def consume(self, bootstrap: str, topics: Sequence[str]) -> Iterator[ConsumedRecord]:
        """Yields every record from the start to the end of every partition."""
        with tempfile.TemporaryFile() as output:
            self._run(["consume", bootstrap, *topics], b"", output)
            output.seek(0)
            yield from unpack_records(output)

    def follow(self, bootstrap: str, topic: str, count: int) -> subprocess.Popen[str]:
        """Start a consumer that reads until it has `count` records; it prints their offsets."""
        command = [*self._command, "follow", bootstrap, topic, str(count)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def member_command(
        self, bootstrap: str, group: str, topic: str, properties: Mapping[str, str]
    ) -> list[str]:
        """Returns the command for a group member that prints the records it handles (see
        Conformance.java)."""
        pairs = [f"{name}={value}" for name, value in properties.items()]
        return [*self._command, "group", bootstrap, group, topic, *pairs]

    def admin(self, bootstrap: str, lines: Sequence[str]) -> list[str]:
        """Run the verbs (see Conformance.java). Returns one answer line for each."""
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
