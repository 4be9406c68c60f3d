"""Lets mirrors fail for want of tombstones: their source no longer holds them, because the link's slots
have not moved for too long."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.harness.broker_process import BrokerProcess
from tests.harness.group_run import until
from tests.harness.typed_commands import TypedCommands

SOURCE = {"offsets.retention.check.interval.ms": "100"}
"""What the source needs."""
INVALIDATED = re.compile(r"^kompakt_slots_invalidated_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
HOLD = "compaction.hold.max.ms"


def fail_mirrors(
    source: BrokerProcess,
    target: BrokerProcess,
    topic: str,
    partitions: int,
    *,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Pause the link `dr`, wait until its slots are invalidated, and resume it: each partition fails.

    Args:
        meanwhile: writes to each partition, unless another thread does.
    """
    there, here = TypedCommands(source), TypedCommands(target)
    here.told("replica", "pause", "dr")
    meanwhile()
    before = _invalidated(source)
    there.told("configs", "set", "--topic", topic, f"{HOLD}=1")
    until(
        "the slots are invalidated",
        lambda: _invalidated(source) >= before + partitions,
        lambda: f"{_invalidated(source)} since the start, {before} before",
    )
    there.told("configs", "unset", "--topic", topic, HOLD)
    here.told("replica", "resume", "dr")
    until(
        "all partitions have failed",
        lambda: states(here) == ["failed"] * partitions,
        lambda: str(mirrored(here)),
    )


def mirrored(typed: TypedCommands) -> list[dict[str, Any]]:
    """Returns the partitions of the link `dr`."""
    found: list[dict[str, Any]] = typed.shown("replica", "status", "dr")["partitions"]
    return found


def states(typed: TypedCommands) -> list[str]:
    return [each["state"] for each in mirrored(typed)]


def _invalidated(source: BrokerProcess) -> int:
    found = INVALIDATED.search(source.metrics())
    assert found is not None
    return int(float(found[1]))
