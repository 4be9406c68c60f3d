"""Suggests the intended name for a mistyped one. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection

SIMILARITY_MIN = 0.75
"""Names with this ratio differ by a typo or two: accouunts and accounts have 0.93."""
NAMES_MAX = 1000
"""No suggestion if there are more names: comparing with 1,000 takes 5 ms."""


def hint(name: str, names: Collection[str]) -> str:
    """Returns e.g. "; did you mean accounts?" if one of `names` is close to `name`, else ""."""
    if len(names) > NAMES_MAX:
        return ""
    near = difflib.get_close_matches(name, names, n=1, cutoff=SIMILARITY_MIN)
    return f"; did you mean {near[0]}?" if near else ""
