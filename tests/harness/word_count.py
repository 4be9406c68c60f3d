"""A stateful Kafka Streams application, `conformance/java/WordCount.java`: start, query, kill, stop.

Its counts are in a state store (a local database) and in that store's changelog, a compacted topic.
After a kill it discards the database and restores it from the changelog: exactly-once only covers
committed records.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.spark.jars import jars
from tests.harness.java_program import SOURCES, compiled, java_command

PINS = SOURCES / "kafka-streams-4.3"
APPLICATION = "word-count"
LINES, COUNTS = "lines", "counts"
"""The input topic, and the output topic for each new count of a word."""
CHANGELOG = f"{APPLICATION}-words-changelog"
STOP_SECONDS_MAX = 30.0


class WordCount:
    """The application on one broker; its local state and its log are in `folder`.

    Raises JarsUnavailable, with a message that says what to install, if it is unavailable.
    """

    def __init__(self, folder: Path, bootstrap: str) -> None:
        found = jars(PINS)
        self._command = java_command("WordCount", [compiled("WordCount", found), *found])
        self._bootstrap = bootstrap
        self._folder = folder
        self._log = folder / "word-count.log"
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
        properties = dict(self._properties())
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

    def state(self) -> dict[str, int]:
        """Returns its state store, once it is running."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("state\n")
        self._process.stdin.flush()
        rows = iter(self._process.stdout.readline, "\n")
        found = dict(row.split() for row in rows if self.check())
        return {word: int(count) for word, count in found.items()}

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

    def _properties(self) -> dict[str, object]:
        """Returns a configuration that detects failures quickly and commits often."""
        return {
            "bootstrap.servers": self._bootstrap,
            "application.id": APPLICATION,
            "state.dir": self._folder / f"state-{self._lives}",
            "commit.interval.ms": 100,
            # Every update of a word's count goes to the changelog and to the output.
            "statestore.cache.max.bytes": 0,
            "topic.min.cleanable.dirty.ratio": 0,
            "producer.transaction.timeout.ms": 10_000,
            "consumer.session.timeout.ms": 2_000,
            "consumer.heartbeat.interval.ms": 500,
            "consumer.auto.offset.reset": "earliest",
        }
