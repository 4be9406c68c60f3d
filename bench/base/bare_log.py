"""A log on the real disk, without a broker around it."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from protocol.wire.numbers import Epoch
from server.runtime.background import Background
from storage.formats.log_identity import LogIdentity
from storage.formats.topic_partition import TopicPartition
from storage.log.opening import LogOpening

TOPIC = TopicPartition("bench", 0)
TOPIC_ID = uuid.UUID(int=1)
BACKGROUND = Background()
"""Removes replaced segments beside the pass, as the broker does."""


def now_ms() -> int:
    return int(time.time() * 1000)


def identity(directory: Path) -> LogIdentity:
    return LogIdentity(
        topic_partition=TOPIC,
        topic_id=TOPIC_ID,
        directory=str(directory),
        directory_id="bench",
        hash_key=bytes(range(16)),
    )


def opening(*, is_clean: bool) -> LogOpening:
    return LogOpening(
        leader_epoch=Epoch(1),
        background=BACKGROUND.submit,
        on_failure=lambda error: None,
        now_ms=now_ms(),
        is_clean=is_clean,
    )
