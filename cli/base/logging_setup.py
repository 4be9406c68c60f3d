"""Sets up the broker's logging: lines on standard error."""

from __future__ import annotations

import logging
import sys
import time

LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def set_up_logging(level: int = logging.INFO) -> None:
    """Send the lines of all loggers to standard error, with times in UTC."""
    formatter = logging.Formatter(LINE)
    formatter.converter = time.gmtime
    formatter.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
