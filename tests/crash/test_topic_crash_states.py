"""Stop topics and the metadata store at every operation of their disk, and start again.

Topics are created over two log directories, written to, grown, deleted and created again under the same
name (`topic_workload.py`). After every crash each topic that was acknowledged is there with its data,
each that was deleted is gone for good with its files, each that was put aside is no topic any longer but
has its records, and what was under way is whole or absent. The
process is also killed alone; then the power fails right after the start.

KOMPAKT_CRASH_STATES sets how many states are tried: one for 25 of the log's own, which take less time.
KOMPAKT_CRASH_SEED is where the seeds begin.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from replog.trigger import CompactionSettings
from server.config.config import BrokerConfig
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.store import RangeResult
from server.runtime.tasks import spawn
from server.topics import settling
from server.topics.creation import TopicCreation
from server.topics.keys import DELETED, PLACED, PUT_ASIDE, UNSETTLED
from server.topics.reconciliation import Reconciliation, _Verdict
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.log.new_files import NewFiles
from tests.crash.topic_workload import CrashState, TopicWorkload, check_state
from tests.harness.memory_fs import MemoryFileSystem

STATES = int(os.environ.get("KOMPAKT_CRASH_STATES", "4000")) // 25
SEED = int(os.environ.get("KOMPAKT_CRASH_SEED", "1"))

Patch = pytest.MonkeyPatch


class Failed(AssertionError):
    """A crash state from which a start went wrong; the message has all to replay it."""


@pytest.fixture(autouse=True)
def small_metadata_log(monkeypatch: Patch) -> None:
    """Snapshots of the metadata store come often."""
    often = CompactionSettings(u=1.0, floor_bytes=2_000, catchup_entries=20)
    monkeypatch.setattr(BrokerConfig, "compaction_settings", lambda _: often)


async def sweep(seed: int, states_max: int) -> int:
    """Recover the crash states of one history; how many there were.

    In every other history one sync of the disk makes all new logs safe.
    """
    states = 0

    async def check(state: CrashState) -> None:
        nonlocal states
        if states >= states_max:
            return
        states += 1
        try:
            await check_state(state)
        except Exception as error:
            text = f"seed {seed}, state {states}: {state.what}: {type(error).__name__}: {error}"
            raise Failed(text) from error

    with Patch.context() as patch:
        patch.setattr(settling, "TOGETHER_MIN", 99 if seed % 2 else 1)
        await TopicWorkload(seed).play(check)
    return states


async def test_every_acknowledged_topic_is_there_and_every_deleted_one_is_gone_for_good(
    capsys: pytest.CaptureFixture[str],
) -> None:
    states, seed = 0, SEED
    while states < STATES:
        states += await sweep(seed, STATES - states)
        seed += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{states} crash states of topics, seeds {SEED} to {seed - 1}\n")


def new_topic_acknowledged_before_its_names_are_safe(patch: Patch) -> None:
    sync = MemoryFileSystem.sync_directory

    def careless(self: MemoryFileSystem, path: str) -> None:
        if path not in ("/a", "/b"):
            sync(self, path)

    patch.setattr(MemoryFileSystem, "sync_directory", careless)


def files_of_a_deleted_topic_forgotten(patch: Patch) -> None:
    patch.setattr(LogDirectory, "delete_topics", lambda *_: None)


def new_log_that_is_written_to_is_not_made_safe(patch: Patch) -> None:
    patch.setattr(NewFiles, "make_safe", lambda _: None)


def new_logs_taken_for_safe_without_a_sync(patch: Patch) -> None:
    patch.setattr(NewFiles, "sync", lambda _: None)


def new_logs_taken_for_safe_without_a_sync_of_the_disk(patch: Patch) -> None:
    patch.setattr(MemoryFileSystem, "sync_all", lambda *_: None)


def new_logs_that_a_crash_has_taken_not_made_again(patch: Patch) -> None:
    forget_at_the_start(patch, UNSETTLED)


def new_logs_made_again_though_they_hold_records(patch: Patch) -> None:
    def careless(directory: LogDirectory, *wanted: Any) -> PartitionLog:
        partition, topic_id, _ = wanted
        path = directory._topic_path(partition.topic, topic_id)
        directory._fs.remove_tree(f"{path}/{partition.partition}")
        return directory._create_log(*wanted)

    patch.setattr(LogDirectory, "open_or_create_log", careless)


def growth_cut_short_taken_for_whole(patch: Patch) -> None:
    patch.setattr(Reconciliation, "_was_acknowledged", lambda *_: _Verdict.YES)


def topic_in_the_store_before_its_placement(patch: Patch) -> None:
    place = TopicCreation._place

    async def late(making: TopicCreation, *arguments: Any) -> None:
        spawn(place(making, *arguments), "placement")

    patch.setattr(TopicCreation, "_place", late)


def placements_not_read(patch: Patch) -> None:
    forget_at_the_start(patch, PLACED)


def deletion_cut_short_not_finished(patch: Patch) -> None:
    forget_at_the_start(patch, DELETED)


def topic_that_is_put_aside_removed(patch: Patch) -> None:
    def careless(self: LogDirectory, topics: Sequence[tuple[str, uuid.UUID]]) -> list[str]:
        self.delete_topics(topics)
        return []

    patch.setattr(LogDirectory, "put_topics_aside", careless)


def putting_aside_cut_short_not_finished(patch: Patch) -> None:
    forget_at_the_start(patch, PUT_ASIDE)


def forget_at_the_start(patch: Patch, prefix: str) -> None:
    """Let a start not see what the store says was under way."""
    read = EmbeddedMetadataStore.range

    async def careless(self: EmbeddedMetadataStore, asked: str) -> RangeResult:
        return await read(self, "/nowhere/" if asked == prefix else asked)

    patch.setattr(EmbeddedMetadataStore, "range", careless)


SEEDS: dict[Callable[[Patch], None], Sequence[int]] = {
    new_logs_taken_for_safe_without_a_sync_of_the_disk: (2, 4, 6),
    topic_that_is_put_aside_removed: (14, 4),
    putting_aside_cut_short_not_finished: (14, 4),
}
"""Histories that do what an injected fault is about; the others have it in most."""


@pytest.mark.parametrize(
    "inject",
    [
        new_topic_acknowledged_before_its_names_are_safe,
        files_of_a_deleted_topic_forgotten,
        new_log_that_is_written_to_is_not_made_safe,
        new_logs_taken_for_safe_without_a_sync,
        new_logs_taken_for_safe_without_a_sync_of_the_disk,
        new_logs_that_a_crash_has_taken_not_made_again,
        new_logs_made_again_though_they_hold_records,
        growth_cut_short_taken_for_whole,
        topic_in_the_store_before_its_placement,
        placements_not_read,
        deletion_cut_short_not_finished,
        topic_that_is_put_aside_removed,
        putting_aside_cut_short_not_finished,
    ],
)
async def test_sweep_over_topics_catches(
    inject: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    inject(monkeypatch)
    with pytest.raises((Failed, AssertionError)):
        await sweeps(SEEDS.get(inject, (3, 5, 1)))


async def sweeps(seeds: Sequence[int]) -> None:
    for seed in seeds:
        await sweep(seed, 600)
