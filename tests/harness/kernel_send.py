"""A stand-in for the system's `send` in the send thread: a test says what is taken, and when."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque

SEND = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, use_errno=True
)

PATIENCE_SECONDS = 30.0


class KernelSend:
    """Takes each answer whole, unless `results` says otherwise.

    Its `address` is valid as long as the object lives.
    """

    def __init__(self, *, delivers: bool = False) -> None:
        """With `delivers`, what it takes is written to the descriptor."""
        self._delivers = delivers
        self.results: deque[int] = deque()
        """How many bytes of the next answers it takes at most, or below 0 with which errno it fails."""
        self.taken: list[tuple[int, bytes]] = []
        """What it took, with the descriptor."""
        self.may_take = threading.Event()
        """While it is not set, answers that were begun wait."""
        self.may_take.set()
        self.has_begun = threading.Event()
        self._function = SEND(self._send)
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        assert address is not None
        self.address = address

    def _send(self, descriptor: int, answer: int, size: int, _: int) -> int:
        self.has_begun.set()
        assert self.may_take.wait(PATIENCE_SECONDS)
        result = self.results.popleft() if self.results else size
        if result < 0:
            return self._failed(-result)
        taken = ctypes.string_at(answer, min(result, size))
        if self._delivers and taken:
            try:
                taken = taken[: os.write(descriptor, taken)]
            except OSError as error:
                return self._failed(error.errno or 0)
        self.taken.append((descriptor, taken))
        return len(taken)

    def _failed(self, error: int) -> int:
        ctypes.set_errno(error)
        return -1
