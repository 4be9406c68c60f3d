"""Lets something happen at every garbage collection: where the interpreter may switch threads."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def at_every_collection(change: Callable[[], None]) -> Iterator[None]:
    """Collect garbage as often as possible in the body, and call `change` each time."""

    def collected(_phase: str, _info: dict[str, int]) -> None:
        change()

    thresholds = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collected)
