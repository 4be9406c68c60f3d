"""What is asynchronous runs on the loop that the broker runs on.

It measures what the broker does: a test whose broker, run by `served_broker.py`, holds the loop for too
long fails, and names what held it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.harness.watched_loop import WatchedLoop


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Any]:
    return {"uvloop": WatchedLoop}
