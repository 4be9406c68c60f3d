"""The C files that the build has made of our compiled modules, which save Cython's time in tests."""

from __future__ import annotations

from pathlib import Path

from tests.harness.broker_process import CHECKOUT

INCLUDED = (".pxd", ".pxi", ".h")


def translated(name: str) -> Path | None:
    """Returns the C file of a module in the checkout; None if there is none of its present sources.

    Args:
        name: the path of its `.pyx` below the checkout.
    """
    source = CHECKOUT / name
    generated = source.with_suffix(".c")
    if not generated.is_file():
        return None
    made_at = generated.stat().st_mtime
    # It may include a file of another room.
    included = (each for suffix in INCLUDED for each in CHECKOUT.glob(f"*/*/*{suffix}"))
    is_present = all(each.stat().st_mtime <= made_at for each in (source, *included))
    return generated if is_present else None
