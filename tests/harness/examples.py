"""How many examples a property tries."""

from __future__ import annotations

import os

EXAMPLES_QUICK = 20


def examples(count: int) -> int:
    """Returns `count`, or fewer in `make quick`."""
    return min(count, EXAMPLES_QUICK) if "KOMPAKT_QUICK" in os.environ else count
