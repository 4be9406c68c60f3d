"""Fails if the files of a new log are created on an event loop: three files, each of which may wait for
the disk. A thread creates them before the first write (`Topics.make_files`)."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from cleaner.rules.text import count_text
from storage.log import opening


@contextmanager
def files_made_in_threads() -> Iterator[None]:
    """Watch within the block. Raises AssertionError at its end."""
    made: list[str] = []
    create = opening._create_files

    def watched(*args: Any) -> None:
        if asyncio._get_running_loop() is not None:
            made.append("".join(traceback.format_stack(limit=12)))
        create(*args)

    with patch.object(opening, "_create_files", watched):
        yield
    count = count_text(len(made), "log")
    assert not made, f"the loop created the files of {count}, first here:\n{made[0]}"
