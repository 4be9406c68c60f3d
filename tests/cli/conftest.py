"""Runs asynchronous tests of commands on the broker's kind of event loop: some run a broker, too."""

from tests.server.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
