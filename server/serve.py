"""`kompakt serve`: configure, run a broker, stop it at a signal; what went wrong as an exit code.

0   stopped as asked
1   could not start, or could not go on: a port in use, a locked directory, damaged metadata
2   the configuration is wrong
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from server.config import BrokerConfig
from server.config_sources import read_sources
from server.logging_setup import set_up_logging
from storage.config_property import ConfigError

EXIT_STOPPED, EXIT_FAILED, EXIT_MISCONFIGURED = 0, 1, 2


def serve(file: Path | None, overrides: Sequence[str]) -> int:
    """Run a broker until it is told to stop; the exit code."""
    set_up_logging()
    try:
        texts = read_sources(file=file, environment=os.environ, overrides=overrides)
        config = BrokerConfig.from_texts(texts)
    except ConfigError as error:
        return _fail(EXIT_MISCONFIGURED, str(error))
    # The broker's modules are only imported for a configuration that can run.
    from server.run import run_until_stopped

    failure = run_until_stopped(config)
    return EXIT_STOPPED if failure is None else _fail(EXIT_FAILED, failure)


def _fail(code: int, reason: str) -> int:
    """A line for each reason on standard error, whatever the logging does."""
    for line in reason.splitlines():
        print(f"kompakt: {line}", file=sys.stderr)  # noqa: T201
    return code
