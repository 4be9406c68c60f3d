"""Start the broker in a container: turn the conventions of Kafka's image into the broker's arguments.

    /mnt/shared/config/server.properties   read if it exists
    KAFKA_...                              properties, as in the official image; override the file
    KAFKA_ADVERTISED_LISTENERS             the address at which clients outside the container reach it
    KAFKA_ALLOW_UNAUTHENTICATED_LISTENERS  true: everyone who reaches the container may use the broker

The process replaces itself with the broker, so that the broker receives the container's signals.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CONFIG = Path("/mnt/shared/config/server.properties")
DEFAULTS = {
    "KAFKA_LISTENERS": "PLAINTEXT://:9092",
    "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
    "KAFKA_HTTP_LISTENER": "127.0.0.1:9644",
}
"""Defaults that a container needs and a laptop does not; a user's settings override them."""

ALLOW = "KAFKA_ALLOW_UNAUTHENTICATED_LISTENERS"
OPEN_HTTP_LISTENER = "0.0.0.0:9644"
"""The HTTP endpoint authenticates nobody, so it leaves the container only if ALLOW says so."""

WARNING = """\
kompakt: KAFKA_ADVERTISED_LISTENERS is not set.
  Clients connect once, receive the broker's advertised address, and use that from then on.
  Without the setting they receive {advertised}, which only works on this machine's own
  network. Set it to an address that your clients can reach, for example:
      from the host:             -e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092
      from the same network:     -e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://<container name>:9092
"""


def settings(
    environment: Mapping[str, str], given_in_file: Sequence[str], *, is_open: bool = False
) -> dict[str, str]:
    """Returns the defaults that are set neither by a variable nor in the file."""
    defaults = DEFAULTS | ({"KAFKA_HTTP_LISTENER": OPEN_HTTP_LISTENER} if is_open else {})
    return {
        name: value
        for name, value in defaults.items()
        if name not in environment and name not in given_in_file
    }


def allows_everyone(environment: Mapping[str, str], file: str) -> bool:
    """Returns whether the operator allows listeners that ask for no authentication."""
    pattern = r"^\s*allow\.unauthenticated\.listeners\s*[=:\s]\s*(\S*)\s*$"
    given = re.findall(pattern, file, re.MULTILINE)
    return environment.get(ALLOW, given[-1] if given else "").lower() == "true"


def variables_of_file(text: str) -> list[str]:
    """Returns the names of the variables that would set the properties of a file."""
    lines = (line.strip() for line in text.splitlines())
    names = [line.partition("=")[0].strip() for line in lines if line and line[0] not in "#!"]
    return ["KAFKA_" + name.upper().replace(".", "_") for name in names]


def warning(environment: Mapping[str, str], given_in_file: Sequence[str], host: str) -> str | None:
    """Returns the warning about a missing advertised listener; None if it is set."""
    name = "KAFKA_ADVERTISED_LISTENERS"
    if name in environment or name in given_in_file:
        return None
    return WARNING.format(advertised=f"PLAINTEXT://{host}:9092")


def command(arguments: Sequence[str], has_file: bool) -> list[str]:
    """Returns the broker's command line."""
    file = ["--config", str(CONFIG)] if has_file else []
    return [sys.executable, "-m", "cli", "serve", *file, *arguments]


def main() -> None:
    """Replace this process with the broker."""
    has_file = CONFIG.is_file()
    file = CONFIG.read_text("utf-8") if has_file else ""
    given = variables_of_file(file)
    text = warning(os.environ, given, os.uname().nodename)
    if text is not None:
        sys.stderr.write(text)
        sys.stderr.flush()
    is_open = allows_everyone(os.environ, file)
    os.environ.update(settings(os.environ, given, is_open=is_open))
    arguments = command(sys.argv[1:], has_file)
    os.execv(arguments[0], arguments)  # noqa: S606 - the broker itself, without a shell


if __name__ == "__main__":
    main()
