"""Whether a client takes gzip, by its Accept-Encoding (RFC 9110, 12.5.3)."""

from __future__ import annotations

import math


def accepts_gzip(accept_encoding: str | None) -> bool:
    """True if gzip, or anything, is among the codings and its weight is above 0. Pure.

    A weight that is no number counts as 0: plain text is right for everybody.
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
