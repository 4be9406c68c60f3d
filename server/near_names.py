"""What somebody may have meant who mistyped a name. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection

LIKENESS = 0.75
"""Names that share this much differ in a slip or two: 0.93 for accouunts and accounts."""
NAMES_MAX = 1000
"""Among more names than this none is looked for: 1,000 take 5 ms."""


def hint(name: str, names: Collection[str]) -> str:
    """ "; did you mean accounts?" if one of the names is close to `name`, else nothing."""
    if len(names) > NAMES_MAX:
        return ""
    near = difflib.get_close_matches(name, names, n=1, cutoff=LIKENESS)
    return f"; did you mean {near[0]}?" if near else ""
