"""`kompakt serve`: read the configuration and run a broker until a signal stops it. Exit codes:

0   stopped by a signal
1   failed to start or to keep running: a port in use, a locked directory, damaged metadata
2   wrong configuration
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.base.log_lines import log_to_stderr
from server.config.config import BrokerConfig
from server.config.sources import read_sources
from storage.formats.config_property import ConfigError

EXIT_STOPPED, EXIT_FAILED, EXIT_MISCONFIGURED = 0, 1, 2


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


def _fail(code: int, reason: str) -> int:
    """Print each line of `reason` to standard error, independent of the logging configuration."""
    for line in reason.splitlines():
        print(f"kompakt: {line}", file=sys.stderr)  # noqa: T201
    return code
