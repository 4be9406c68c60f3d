"""Which logs are not cleaned by another process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.remote.refusal import why_not_remote
from cleaner.rules.fence import Fence
from protocol.wire.numbers import Offset
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition

PARTITION = TopicPartition("orders", 0)
COMPACT = LogConfig(cleanup_policy=("compact",))


def test_an_ordinary_log_may_be_cleaned_by_another_process() -> None:
    assert why_not_remote(PARTITION, COMPACT, has_history=False, fences=()) is None


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"compaction_strategy": "timestamp"}, "compaction.strategy=timestamp"),
        ({"compaction_versions": 2}, "older values of orders-0 stay"),
        ({"compaction_thinning": "all for 1h"}, "older values of orders-0 stay"),
        ({"min_segment_dead_ratio": 0.5}, "older values of orders-0 stay"),
        ({"compaction_unkeyed_records": "move", "compaction_unkeyed_topic": "x"}, "moves records"),
        ({"compaction_compare_keys": True}, "compaction.compare.keys=true"),
    ],
)
def test_what_a_plan_cannot_say_is_left_to_the_broker(
    config: dict[str, object], reason: str
) -> None:
    chosen = replace(COMPACT, **config)  # type: ignore[arg-type]

    why = why_not_remote(PARTITION, chosen, has_history=False, fences=())

    assert why is not None
    assert reason in why
    assert "only the broker's own cleaner" in why


def test_older_values_that_a_former_setting_kept_and_damage_are_left_to_the_broker() -> None:
    damaged = Fence(
        base_offset=Offset(5),
        end_offset=Offset(9),
        file_version=1,
        size=100,
        reason="its CRC differs",
        since_ms=7,
    )

    former = why_not_remote(PARTITION, COMPACT, has_history=True, fences=())
    around = why_not_remote(PARTITION, COMPACT, has_history=False, fences=[damaged])

    assert former is not None
    assert "or did so" in former
    assert around == f"only the broker's own cleaner cleans around {damaged}"
