"""Kafka's own command-line tools, several commands in one JVM.

`tests/conformance/java/KafkaTools.java` is the other end of the pipe.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

from tests.harness.java_program import SOURCES, JavaProgram

PINS = SOURCES / "kafka-tools-4.3"
TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
}
"""The classes behind the scripts in Kafka's bin/."""
WITH_SUBCOMMANDS = {"kafka-cluster"}
"""Tools whose first word is a subcommand; options come after it."""
GIVEN_FILE = "<given>"
"""As a word of a command: the path of a file with the given input."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a command; code -1 if it threw an exception."""

    code: int
    output: str
    errors: str


class KafkaTools(JavaProgram):
    """The tools against one broker."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("KafkaTools", PINS)
        self._bootstrap = bootstrap

    def run(self, tool: str, *arguments: str, given: str = "") -> Ran:
        """Run a tool to its end, with `given` on its standard input and in GIVEN_FILE."""
        given_file = self._folder / "given"
        given_file.write_text(given)
        words = [str(given_file) if word == GIVEN_FILE else word for word in arguments]
        place = 1 if tool in WITH_SUBCOMMANDS else 0
        words[place:place] = ["--bootstrap-server", self._bootstrap]
        line = " ".join(_encoded(word) for word in (TOOLS[tool], *words))
        answer = self._answers(f"{line} - {_encoded(given)}").readline()
        if not answer:
            raise self._ended(tool)
        code, output, errors = answer.split()
        return Ran(int(code), _decoded(output), _decoded(errors))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "="


def _decoded(text: str) -> str:
    return "" if text == "=" else base64.b64decode(text).decode()
