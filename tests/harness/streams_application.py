"""Applications of Kafka Streams, `conformance/java/StreamsApplication.java`: start, query, kill, stop.

Each has one state store. The counts of the word count are in its changelog also, a compacted topic:
after a kill the application discards its local database and restores it from there, because
exactly-once only covers committed records. A global table has no changelog but its topic.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.spark.jars import jars
from tests.harness.java_program import SOURCES, compiled, java_command

PROGRAM = "StreamsApplication"
PINS = SOURCES / "kafka-streams-4.3"
WORD_COUNT = "word-count"
LINES, COUNTS = "lines", "counts"
"""The input topic of the word count, and the output topic for each new count of a word."""
CHANGELOG = f"{WORD_COUNT}-rows-changelog"
STOP_SECONDS_MAX = 30.0


class StreamsApplication:
    """An application with one topology; its local state and its log are in `folder`.

    Raises JarsUnavailable, with a message that says what to install, if it is unavailable.
    """

    def __init__(self, folder: Path, topology: str, properties: Mapping[str, object]) -> None:
        found = jars(PINS)
        command = java_command(PROGRAM, [compiled(PROGRAM, found), *found])
        self._command = [*command, topology]
        self._properties = properties
        self._folder = folder
        self._log = folder / f"{properties['application.id']}.log"
        self._lives = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    def start(self, *, forgetful: bool = False, restore_suffix: str = "") -> None:
        """Start the process; with `forgetful` it finds no local state.

        Args:
            restore_suffix: is added to the name of a changelog for the topic that it is restored from.
        """
        self._lives += forgetful
        state = self._folder / f"{self._properties['application.id']}-state-{self._lives}"
        properties = {**self._properties, "state.dir": state}
        if restore_suffix:
            properties["restore.suffix"] = restore_suffix
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *(f"{name}={value}" for name, value in properties.items())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def rows(self) -> dict[str, str]:
        """Returns its state store, once it is running."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("rows\n")
        self._process.stdin.flush()
        found: dict[str, str] = {}
        for row in iter(self._process.stdout.readline, "\n"):
            assert row, f"it has ended: {self.tail()}"
            key, value = row.rstrip("\n").rsplit(" ", 1)
            found[key] = value
        return found

    def check(self) -> bool:
        """Fail if it has ended. Returns true."""
        assert self._process is not None
        assert self._process.poll() is None, self.tail()
        return True

    def kill(self) -> None:
        """Send SIGKILL. Its transaction stays open."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._process = None

    def stop(self) -> None:
        """Let it end normally: it commits and leaves its group."""
        assert self._process is not None
        self._process.communicate(timeout=STOP_SECONDS_MAX)
        assert self._process.returncode == 0, self.tail()
        self._process = None

    def tail(self) -> str:
        """Returns the end of its log, for messages."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])


def word_count(folder: Path, bootstrap: str) -> StreamsApplication:
    """Returns an application, not started, that counts words exactly once.

    Its configuration detects failures quickly and commits often.
    """
    properties = {
        "bootstrap.servers": bootstrap,
        "application.id": WORD_COUNT,
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": 100,
        # Every update of a word's count goes to the changelog and to the output.
        "statestore.cache.max.bytes": 0,
        "topic.min.cleanable.dirty.ratio": 0,
        "producer.transaction.timeout.ms": 10_000,
        "consumer.session.timeout.ms": 2_000,
        "consumer.heartbeat.interval.ms": 500,
        "consumer.auto.offset.reset": "earliest",
    }
    return StreamsApplication(folder, "words", properties)


def global_table(folder: Path, bootstrap: str, topic: str) -> StreamsApplication:
    """Returns an application, not started, with a global table of a topic."""
    properties = {"bootstrap.servers": bootstrap, "application.id": "global-table"}
    return StreamsApplication(folder, f"table={topic}", properties)
