"""Checkouts of Kompakt whose code is measured: this one, and that of another release beside it.

    KOMPAKT_BENCH_BEFORE=../before python -m bench releases

The other one needs an environment of its own, because its packages and compiled modules differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.base.processes import REPOSITORY

VARIABLE = "KOMPAKT_BENCH_BEFORE"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout and the Python of its environment."""

    folder: Path
    python: str

    @property
    def name(self) -> str:
        """Returns "Kompakt at" its tag or commit; at its folder's name if Git knows neither."""
        described = subprocess.run(
            ["git", "describe", "--always", "--tags", "--dirty"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return f"Kompakt at {described.stdout.strip() or self.folder.name}"


THIS_CHECKOUT = Checkout(REPOSITORY, sys.executable)


def other_checkout(environ: Mapping[str, str] = os.environ) -> Checkout:
    """Returns the checkout that KOMPAKT_BENCH_BEFORE names.

    Raises:
        RuntimeError: the variable does not name a checkout with an environment.
    """
    folder = Path(environ.get(VARIABLE, "")).absolute()
    python = folder / ".venv/bin/python"
    if not environ.get(VARIABLE) or not python.exists():
        raise RuntimeError(
            f"set {VARIABLE} to a checkout of another release, and run `make .venv/.installed` there"
        )
    return Checkout(folder, str(python))
