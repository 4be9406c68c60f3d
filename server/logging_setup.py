"""Where the broker's log lines go: one line each on standard error."""

from __future__ import annotations

import logging
import sys
import time

LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def set_up_logging(level: int = logging.INFO) -> None:
    """Send every logger's lines to standard error, with the time in UTC."""
    formatter = logging.Formatter(LINE)
    formatter.converter = time.gmtime
    formatter.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
