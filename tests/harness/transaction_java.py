"""The Java client in transactions: a program, and a reader.

`tests/conformance/java/Transactions.java` is the other end.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from pipeline.spark.jars import jars
from tests.harness.java_client import RELEASES
from tests.harness.java_program import SOURCES, compiled, java_command
from tests.harness.transaction_history import Place, Seen

SECONDS_MAX = 120


def transactions_command(release: str) -> list[str]:
    """Returns the command for the program with a release of the client, without its arguments.

    Raises JarsUnavailable, with a message that says what to install, if it is unavailable.
    """
    program = compiled("Transactions", jars(SOURCES / f"kafka-{RELEASES[0]}"))
    return java_command("Transactions", [program, *jars(SOURCES / f"kafka-{release}")])


def read_committed_by_java(
    bootstrap: str, places: Sequence[Place], release: str
) -> tuple[dict[Place, int], dict[Place, list[Seen]]]:
    """Returns the last stable offsets, and the records below them that the Java client gets now."""
    words = [f"{topic}:{partition}" for topic, partition in places]
    command = [*transactions_command(release), bootstrap, "read", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    ends: dict[Place, int] = {}
    records: dict[Place, list[Seen]] = {place: [] for place in places}
    for line in done.stdout.splitlines():
        kind, topic, partition, offset, *rest = line.split()
        place = (topic, int(partition))
        if kind == "end":
            ends[place] = int(offset)
        else:
            key, name, number = rest
            records[place].append(Seen(int(offset), (name, int(number)), key))
    return ends, records
