"""The cleaner as a part of the broker: it starts as a whole or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storage.files.errors import DamagedFile
from storage.files.paths import SHOWN_BY_CLEANERS
from tests.harness.served_broker import serving_broker


async def test_a_start_that_fails_at_the_token_leaves_no_cleaner_behind(tmp_path: Path) -> None:
    properties = {"log_cleaner_enable": "true", "log_cleaner_remote_enable": "true"}
    async with serving_broker(tmp_path, **properties) as served:
        directory = Path(served.broker.config.metadata_directory)
        assert "cleaner-0" in names_of_tasks()
    (directory / SHOWN_BY_CLEANERS).write_text("not a token\n")

    with pytest.raises(DamagedFile):
        async with serving_broker(tmp_path, **properties):
            pytest.fail("it has started")

    assert "cleaner-0" not in names_of_tasks()


def names_of_tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}
