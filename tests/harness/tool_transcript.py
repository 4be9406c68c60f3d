"""Transcripts of Kafka's tools against Apache Kafka, to be compared with their output against us.

A transcript is a list of commands, each with its input and its output:

    $ kafka-console-producer --topic t
    < a line of its standard input, and of the file <given>
    a line of its output
    ! a line of its standard error, without stack traces
    -> its exit code

    python -m tests.harness.tool_transcript HOST:PORT FILE...    run the commands again, against a Kafka
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.harness.kafka_tools import KafkaTools

VOLATILE = (
    (re.compile(r"(TopicId: )\S+"), r"\1<id>"),
    (re.compile(r'("logDir":)"[^"]*"'), r"\1<path>"),
    (re.compile(r'("log_dirs":\[)"[^"]*"'), r"\1<path>"),
    (re.compile(r"^(Cluster ID: )\S+"), r"\1<id>"),
    # Kafka prints some of its messages wrapped in the names of Java classes.
    (
        re.compile(
            r"Invalid value org\.apache\.kafka\.common\.config\.ConfigException: (.*)"
            r" for configuration Invalid dynamic configuration"
        ),
        r"\1",
    ),
    # The served versions are our own choice; that they are listed is not.
    (re.compile(r"^(\t\w+\(\d+\): )(UNSUPPORTED|[^,]*\])"), r"\1<versions>"),
    (re.compile(r"(LastTimestamp\S*\s+)\d+"), r"\1<ms>"),
    (re.compile(r"\b\d{13}\b"), "<ms>"),
    # Column widths depend on the content, for instance on a port.
    (re.compile(r"(?<=\S) {2,}"), " "),
    # Kafka 4 with eligible leader replicas sets this for the whole cluster when it is formatted.
    (re.compile(r"(Configs: )min\.insync\.replicas=1,?"), r"\1"),
    (re.compile(r"(<ms>\s+)\d+\b"), r"\1<ms>"),
    # Transactions: producer ids depend on earlier producers, epochs on transaction.version.
    (re.compile(r"\t\d+ \t\d+(?= \t(Empty|Ongoing|Prepare|Complete))"), r"\t<id> \t<epoch>"),
    (re.compile(r"\t\d+(?= \t(Empty|Ongoing|Prepare|Complete))"), r"\t<id>"),
    (re.compile(r"^\d+ \t\d+(?= \t-?\d+ \t-?\d+ \t<ms>)"), r"<id> \t<epoch>"),
    (re.compile(r"( records sent, ).*"), r"\1<figures>"),
    # The quorum: its progress and addresses; Kafka's controllers have their own listeners.
    (re.compile(r"^((?:ClusterId|LeaderEpoch|HighWatermark):\s+)\S+"), r"\1<figure>"),
    (re.compile(r'("directoryId": ")[^"]+(", "endpoints": \[")[^"]+'), r"\1<id>\2<address>"),
    (re.compile(r"^(\d+\s+)\S{22}(\s+)\d+(?=\s+0\s)"), r"\1<id>\2<offset>"),
)
STACK_LINE = re.compile(r"^\s+(at |\.\.\. )|^Caused by: ")


@dataclass(frozen=True, slots=True)
class Step:
    """A command and its result."""

    command: str
    given: tuple[str, ...]
    said: tuple[str, ...]
    """Output, errors and exit code, in the notation of the transcript."""


def read_steps(path: Path) -> list[Step]:
    """Returns the steps of a transcript."""
    steps = []
    for part in ("\n" + path.read_text("utf-8")).split("\n$ ")[1:]:
        command, *lines = part.rstrip("\n").split("\n")
        given = tuple(line[2:] for line in lines if line.startswith("< "))
        said = tuple(_in_order(line) for line in lines if not line.startswith("< "))
        steps.append(Step(command, given, said))
    return steps


def run_step(step: Step, tools: KafkaTools, bootstrap: str) -> Step:
    """Run a step with these tools. Returns it with the new output."""
    tool, *arguments = shlex.split(step.command)
    ran = tools.run(tool, *arguments, given="".join(f"{line}\n" for line in step.given))
    output = [*_lines(ran.output, bootstrap), *(f"! {e}" for e in _lines(ran.errors, bootstrap))]
    return replace(step, said=(*output, f"-> {ran.code}"))


def _lines(text: str, bootstrap: str) -> Iterator[str]:
    text = text.replace(bootstrap, "<bootstrap>")
    host, _, port = bootstrap.rpartition(":")
    for line in text.splitlines():
        if line.strip() and not STACK_LINE.search(line):
            for pattern, instead in VOLATILE:
                line = pattern.sub(instead, line)
            yield _in_order(line.replace(f"{host} {port}", "<host> <port>").rstrip())


def _in_order(line: str) -> str:
    """Returns a line with a topic's settings sorted: the tool's order depends on how many there are."""
    before, configs, settings = line.partition("Configs: ")
    return before + configs + ",".join(sorted(settings.split(",")))


def _record(path: Path, tools: KafkaTools, bootstrap: str) -> None:
    steps = [run_step(step, tools, bootstrap) for step in read_steps(path)]
    texts = ["\n".join([f"$ {s.command}", *(f"< {g}" for g in s.given), *s.said]) for s in steps]
    path.write_text("\n".join(texts) + "\n", "utf-8")


if __name__ == "__main__":
    with KafkaTools(sys.argv[1]) as running:
        for name in sys.argv[2:]:
            _record(Path(name), running, sys.argv[1])
