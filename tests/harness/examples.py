"""How much a test tries: in a soak, in all tests, and in `make quick`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import pytest

EXAMPLES_QUICK = 20

IS_QUICK = "KOMPAKT_QUICK" in os.environ
IS_SOAK = "KOMPAKT_SOAK" in os.environ

T = TypeVar("T")

not_quick = pytest.mark.skipif(IS_QUICK, reason="takes seconds: not in make quick")
"""Marks a test of seconds in a file whose other tests are quick. Whole files are in the Makefile."""


def examples(count: int) -> int:
    """Returns `count`, or fewer in `make quick`."""
    return min(count, EXAMPLES_QUICK) if IS_QUICK else count


def every(stride: int, cases: Iterable[T]) -> Iterator[T]:
    """Yields every `stride`-th case, from a random one on, so that each has its turn; in a soak all of
    them."""
    return iter(cases) if IS_SOAK else islice(cases, random.randrange(stride), None, stride)
