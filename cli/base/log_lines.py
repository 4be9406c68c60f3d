"""The log lines of a process that serves: on standard error, with times in UTC."""

from __future__ import annotations

import logging
import sys
import time

LOG_LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def log_to_stderr() -> None:
    """Send the lines of all loggers to standard error, with times in UTC."""
    formatter = logging.Formatter(LOG_LINE)
    formatter.converter = time.gmtime
    formatter.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
