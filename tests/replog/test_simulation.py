"""Leader and learners in a simulation: whatever fails, every copy has the state that was committed."""

from __future__ import annotations

import os

import pytest

from replog import checkpoints, in_log
from replog.compactor import Placement
from tests.harness.replog_merging import ChildDied
from tests.harness.replog_world import World

SEEDS = int(os.environ.get("KOMPAKT_REPLOG_SEEDS", "200"))
FIRST = int(os.environ.get("KOMPAKT_REPLOG_SEED", "0"))
STEPS = 400
PARTS = 8


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make snapshots of several blocks and chunks from a small state."""
    monkeypatch.setattr(checkpoints, "BLOCK_BYTES", 150)
    monkeypatch.setattr(in_log.InLog, "chunk_bytes", 200)


def run(seed: int, world_of: type[World] = World) -> World:
    """Simulate one seed to its end. A failure names the seed, which repeats it."""
    world = world_of(seed, list(Placement)[seed % len(Placement)])
    try:
        world.run(STEPS)
        world.settle()
    except BaseException as error:
        error.add_note(f"seed {seed}, {world.placement.value}, at {world.now:.1f} ms")
        raise
    return world


@pytest.mark.parametrize("part", range(min(PARTS, SEEDS)))
def test_every_copy_has_the_committed_state_whatever_fails(part: int) -> None:
    worlds = [run(seed) for seed in range(FIRST + part, FIRST + SEEDS, PARTS)]

    assert sum(node.snapshots for world in worlds for node in world.nodes) > len(worlds)
    if len(worlds) > 10:
        assert sum(node.installs for world in worlds for node in world.nodes) > 0
        children = [child for world in worlds for node in world.nodes for child in node.children]
        assert any(child.problem is None for child in children)
        assert any(child.problem == repr(ChildDied()) for child in children)
