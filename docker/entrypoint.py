"""Start the broker in a container: Kafka's image's habits become the broker's own arguments.

    /mnt/shared/config/server.properties   read if it is there
    KAFKA_...                              properties, as in the official image; win over the file
    KAFKA_ADVERTISED_LISTENERS             where clients outside the container reach it

It replaces itself by the broker, which so gets the container's signals.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CONFIG = Path("/mnt/shared/config/server.properties")
DEFAULTS = {
    "KAFKA_LISTENERS": "PLAINTEXT://:9092",
    "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
    "KAFKA_HTTP_LISTENER": "0.0.0.0:9644",
}
"""What a container needs otherwise than a laptop; what anybody sets wins."""

WARNING = """\
kompakt: KAFKA_ADVERTISED_LISTENERS is not set.
  Clients connect once, are told the broker's advertised address, and connect to that from then on.
  Without it they are told {told}, which only works on this machine's own
  network. Set it to what your clients can reach, for example:
      from the host:             -e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092
      from the same network:     -e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://<container name>:9092
"""


def settings(environment: Mapping[str, str], given_in_file: Sequence[str]) -> dict[str, str]:
    """The defaults that nobody has set, neither by a variable nor in the file."""
    return {
        name: value
        for name, value in DEFAULTS.items()
        if name not in environment and name not in given_in_file
    }


def variables_of_file(text: str) -> list[str]:
    """The variables that would set the properties of a file."""
    lines = (line.strip() for line in text.splitlines())
    names = [line.partition("=")[0].strip() for line in lines if line and line[0] not in "#!"]
    return ["KAFKA_" + name.upper().replace(".", "_") for name in names]


def warning(environment: Mapping[str, str], given_in_file: Sequence[str], host: str) -> str | None:
    """What to tell about the advertised listener; None if it is set."""
    name = "KAFKA_ADVERTISED_LISTENERS"
    if name in environment or name in given_in_file:
        return None
    return WARNING.format(told=f"PLAINTEXT://{host}:9092")


def command(arguments: Sequence[str], has_file: bool) -> list[str]:
    """The broker's command line."""
    file = ["--config", str(CONFIG)] if has_file else []
    return [sys.executable, "-m", "server", "serve", *file, *arguments]


def main() -> None:
    """Become the broker."""
    has_file = CONFIG.is_file()
    given = variables_of_file(CONFIG.read_text("utf-8")) if has_file else []
    told = warning(os.environ, given, os.uname().nodename)
    if told is not None:
        sys.stderr.write(told)
        sys.stderr.flush()
    os.environ.update(settings(os.environ, given))
    arguments = command(sys.argv[1:], has_file)
    os.execv(arguments[0], arguments)  # noqa: S606 - the broker itself, without a shell


if __name__ == "__main__":
    main()
