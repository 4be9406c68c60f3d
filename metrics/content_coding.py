"""Parses Accept-Encoding: does the client accept gzip? (RFC 9110, 12.5.3)"""

from __future__ import annotations

import math


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Returns whether gzip, or `*`, is among the codings with a weight above 0. Pure.

    A weight that is not a number counts as 0: every client accepts plain text.
    """
    weights = dict(map(_coding, (accept_encoding or "").lower().split(",")))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _coding(element: str) -> tuple[str, float]:
    name, _, parameter = element.partition(";")
    key, _, weight = parameter.partition("=")
    if not parameter.strip():
        return name.strip(), 1.0
    try:
        number = float(weight) if key.strip() == "q" else 0.0
    except ValueError:
        number = 0.0
    return name.strip(), number if math.isfinite(number) else 0.0
