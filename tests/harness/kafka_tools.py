"""Kafka's own command-line tools, several commands in one JVM.

`tests/conformance/java/KafkaTools.java` is the other end of the pipe.
"""

from __future__ import annotations

import base64
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.jars import jars
from tests.harness.java_program import SOURCES, compiled, java_command

PINS = SOURCES / "kafka-tools-4.3"
TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
}
"""The classes behind the scripts in Kafka's bin/."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command has come to; -1 is the code of one that threw."""

    code: int
    output: str
    errors: str


class KafkaTools:
    """The tools against one broker.

    Raises JarsUnavailable, with a sentence that says what to install, where they cannot be had.
    """

    def __init__(self, bootstrap: str) -> None:
        found = jars(PINS)
        class_path = [compiled("KafkaTools", found), *found]
        self._bootstrap = bootstrap
        self._scratch = tempfile.TemporaryDirectory(prefix="kafka-tools-")
        self._said = Path(self._scratch.name) / "stderr"
        with self._said.open("wb") as stderr:
            self._process = subprocess.Popen(
                java_command("KafkaTools", class_path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()
        self._scratch.cleanup()

    def run(self, tool: str, *arguments: str, given: str = "") -> Ran:
        """Run a tool to its end, with `given` on its standard input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [TOOLS[tool], "--bootstrap-server", self._bootstrap, *arguments]
        line = " ".join(_encoded(word) for word in words)
        self._process.stdin.write(f"{line} - {_encoded(given)}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            raise AssertionError(f"{tool} ended the JVM:\n{self._said.read_text()[-4000:]}")
        code, output, errors = answer.split()
        return Ran(int(code), _decoded(output), _decoded(errors))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "="


def _decoded(text: str) -> str:
    return "" if text == "=" else base64.b64decode(text).decode()
