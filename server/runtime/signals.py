"""Handles SIGTERM and SIGINT: the first one drains the broker, a second one ends it immediately."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

_log = logging.getLogger("server.runtime.signals")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """An event that the first signal sets. Installs its handlers on the running loop."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._received, number)

    @property
    def is_set(self) -> bool:
        """Whether the process must stop."""
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()

    def set(self) -> None:
        """Stop as if a signal had arrived."""
        self._event.set()

    def _received(self, number: signal.Signals) -> None:
        if self._event.is_set():
            _log.warning("%s again: exiting immediately; the next start recovers", number.name)
            # Everything acknowledged is already written, and no cleanup may delay the exit.
            logging.shutdown()
            os._exit(128 + number)
        _log.info("%s: stopping", number.name)
        self._event.set()
