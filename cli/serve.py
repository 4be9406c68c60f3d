"""`kompakt serve`: read the configuration and run a broker until a signal stops it. Exit codes:

0   stopped by a signal
1   failed to start or to keep running: a port in use, a locked directory, damaged metadata
2   wrong configuration
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from server.config.config import BrokerConfig
from server.config.sources import read_sources
from storage.formats.config_property import ConfigError

EXIT_STOPPED, EXIT_FAILED, EXIT_MISCONFIGURED = 0, 1, 2
LOG_LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def serve(file: Path | None, overrides: Sequence[str]) -> int:
    """Run a broker until a signal stops it, and return the exit code."""
    log_to_stderr()
    try:
        texts = read_sources(file=file, environment=os.environ, overrides=overrides)
        config = BrokerConfig.from_texts(texts)
    except ConfigError as error:
        return _fail(EXIT_MISCONFIGURED, str(error))
    # Imported late: a wrong configuration is reported without loading the broker's modules.
    from server.run import run_until_stopped

    failure = run_until_stopped(config)
    return EXIT_STOPPED if failure is None else _fail(EXIT_FAILED, failure)


def log_to_stderr() -> None:
    """Send the lines of all loggers to standard error, with times in UTC."""
    formatter = logging.Formatter(LOG_LINE)
    formatter.converter = time.gmtime
    formatter.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _fail(code: int, reason: str) -> int:
    """Print each line of `reason` to standard error, independent of the logging configuration."""
    for line in reason.splitlines():
        print(f"kompakt: {line}", file=sys.stderr)  # noqa: T201
    return code
