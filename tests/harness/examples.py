"""How much a test tries, in all tests and in `make quick`."""

from __future__ import annotations

import os

import pytest

EXAMPLES_QUICK = 20

IS_QUICK = "KOMPAKT_QUICK" in os.environ

not_quick = pytest.mark.skipif(IS_QUICK, reason="takes seconds: not in make quick")
"""Marks a test of seconds in a file whose other tests are quick. Whole files are in the Makefile."""


def examples(count: int) -> int:
    """Returns `count`, or fewer in `make quick`."""
    return min(count, EXAMPLES_QUICK) if IS_QUICK else count
