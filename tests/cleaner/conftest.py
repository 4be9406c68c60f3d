"""Fixtures of the tests of the pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cleaner.pool_house import House


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)
