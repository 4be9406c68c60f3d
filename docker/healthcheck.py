"""Whether the broker of this container serves: ends with 0 if it does, else with 1 and the reason.

It asks /health/ready where the broker listens for HTTP: `http.listener` of the command line, else
KAFKA_HTTP_LISTENER, else the mounted server.properties, else the container's own. Without an HTTP
listener it connects to the first of `listeners`. It runs every few seconds, so it imports little.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CONFIG = Path("/mnt/shared/config/server.properties")
BROKER = Path("/proc/1/cmdline")
DEFAULTS = {"http.listener": "0.0.0.0:9644", "listeners": "PLAINTEXT://:9092"}
"""As in the entry point, which sets them where nobody else does."""
TIMEOUT_SECONDS = 2.0
EVERYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what is listened on
ADDRESS = re.compile(r"(?:\w+://)?(.*):(\d+)")


def configured(
    name: str, arguments: Sequence[str], environment: Mapping[str, str], file: str
) -> str:
    """The value that a property has for the broker; the later source wins."""
    value = DEFAULTS[name]
    given = re.findall(rf"^\s*{re.escape(name)}\s*[=:]\s*(.*?)\s*$", file, re.MULTILINE)
    value = given[-1] if given else value
    value = environment.get("KAFKA_" + name.upper().replace(".", "_"), value)
    for argument in arguments:
        text = argument.removeprefix("--override=")
        if text.startswith(name + "="):
            value = text.removeprefix(name + "=")
    return value


def address_in(text: str) -> tuple[str, int] | None:
    """Where to connect to reach what listens on `[NAME://]host:port`; None for an empty text.

    Raises:
        ValueError: it is not that.
    """
    first = text.split(",")[0].strip()
    if not first:
        return None
    found = ADDRESS.fullmatch(first)
    if found is None:
        raise ValueError(f"{text} is not host:port")
    host = found[1].strip("[]")
    return EVERYWHERE.get(host, host), int(found[2])


def wrong(arguments: Sequence[str], environment: Mapping[str, str], file: str) -> str | None:
    """Why the broker does not serve, None if it does."""
    try:
        asked = address_in(configured("http.listener", arguments, environment, file))
        if asked is not None:
            return _not_ready(*asked)
        listener = address_in(configured("listeners", arguments, environment, file))
        if listener is not None:
            socket.create_connection(listener, TIMEOUT_SECONDS).close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _not_ready(host: str, port: int) -> str | None:
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/health/ready")
        response = connection.getresponse()
        text = response.read().decode(errors="replace").strip()
        return None if response.status == http.client.OK else text
    finally:
        connection.close()


def main() -> int:
    """Ask the broker of this container."""
    arguments = BROKER.read_bytes().decode(errors="replace").split("\0") if BROKER.exists() else []
    file = CONFIG.read_text("utf-8", errors="replace") if CONFIG.is_file() else ""
    reason = wrong(arguments, os.environ, file)
    if reason is not None:
        sys.stdout.write(reason + "\n")
    return int(reason is not None)


if __name__ == "__main__":
    sys.exit(main())
