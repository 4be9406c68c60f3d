"""A worker can start its pass with every accepted setting."""

from __future__ import annotations

import pytest

from cleaner.kernel.kernel import OffsetMap
from server.config.config import BrokerConfig


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.cleaner.io.buffer.load.factor", "0.99"),
        ("log.cleaner.io.buffer.load.factor", "0.01"),
        ("log.cleaner.dedupe.buffer.size", "1"),
        ("log.cleaner.io.buffer.size", "0"),
    ],
)
def test_the_least_and_the_most_that_is_accepted_make_an_offset_map(name: str, text: str) -> None:
    settings = BrokerConfig.from_texts(
        {name: text, "log.cleaner.threads": "256"}
    ).cleaner_settings()

    offset_map = OffsetMap(settings.map_bytes, bytes(16), settings.map_load_factor)

    assert offset_map.capacity >= 1
    assert settings.chunk_bytes >= 1 << 20
