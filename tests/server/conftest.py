"""Runs asynchronous tests on the broker's kind of event loop, and measures how long the broker holds it.

A test fails if its broker, run by `served_broker.py`, holds the loop for too long; the failure names the
code that held it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.harness.watched_loop import WatchedLoop


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Any]:
    return {"uvloop": WatchedLoop}
