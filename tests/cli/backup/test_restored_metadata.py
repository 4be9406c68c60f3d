"""The metadata stores of a restored directory: which entries they get, and that they are whole."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
import typer
from typer.main import get_command

from cli.backup.commands import app, complete_backup
from cli.backup.restored_metadata import ENTRIES_MAX, Entries, restored_entries, write_stores
from replog.trigger import CompactionSettings
from server.topics.keys import placed_json, topic_value
from server.topics.stores import open_stores
from storage.files.local_files import LocalFileSystem
from storage.files.paths import topic_id_text
from storage.snapshots.descriptor import DirectoryInSnapshot, SnapshotDescriptor
from tests.harness.backups import made
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.snapshot_world import SnapshotWorld

ORDERS, PRICES, GONE = (topic_id_text(uuid.UUID(int=number)) for number in (1, 2, 3))
DIRECTORY = "A" * 22

OF_PRICES: Mapping[str, str] = {
    "/topics/prices": topic_value(uuid.UUID(int=2), 1, {}),
    f"/paused/{PRICES}": "{}",
    f"/paused/{PRICES}/0": "{}",
    "/erasures/b": json.dumps({"topic": "prices", "topic_id": PRICES}),
}
OF_ALL: Mapping[str, str] = {
    "/topics/orders": topic_value(uuid.UUID(int=1), 2, {"retention.ms": "5"}),
    f"/paused/{ORDERS}/1": "{}",
    "/paused/everything": "{}",
    "/erasures/a": json.dumps({"topic": "orders", "topic_id": ORDERS}),
    "/scram/alice": "verifier",
    "/acls/1": "prices is named here, and this is no topic",
    "/quotas/x": "{}",
    "/producer_ids/next": "1000",
}
NODE_OF_PRICES: Mapping[str, str] = {
    f"/placed/{PRICES}": placed_json("prices", [DIRECTORY]),
    f"/unsettled/{PRICES}/0": "",
    f"/deleted/{GONE}": "{}",
    f"/put-aside/{GONE}": "{}",
}
NODE_OF_ALL: Mapping[str, str] = {
    f"/placed/{ORDERS}": placed_json("orders", [DIRECTORY, DIRECTORY]),
    f"/unsettled/{ORDERS}/1": "",
    "/broker_configs/1": "{}",
}


@pytest.fixture
def snapshot() -> SnapshotDescriptor:
    return SnapshotDescriptor(
        id="x",
        created_ms=0,
        cluster_id="C" * 22,
        node_id=1,
        directories=[DirectoryInSnapshot(id=DIRECTORY, path="/data", has_metadata=True)],
        topics=[],
        cluster={**OF_ALL, **OF_PRICES},
        node={**NODE_OF_ALL, **NODE_OF_PRICES},
    )


async def content(disk: MemoryFileSystem, directory: str) -> Entries:
    stores = await open_stores(disk, directory, CompactionSettings())
    found = [
        {entry.key: entry.value for entry in (await store.range("/")).entries} for store in stores
    ]
    await stores.close()
    return Entries(*found)


def test_without_a_choice_all_entries_are_restored(snapshot: SnapshotDescriptor) -> None:
    assert restored_entries(snapshot) == Entries(snapshot.cluster, snapshot.node)


def test_topics_that_are_not_restored_appear_nowhere(snapshot: SnapshotDescriptor) -> None:
    assert restored_entries(snapshot, ["orders"]) == Entries(OF_ALL, NODE_OF_ALL)
    assert restored_entries(snapshot, ["orders", "prices"]).cluster == snapshot.cluster


async def test_the_stores_have_the_entries_durably(snapshot: SnapshotDescriptor) -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    disk.sync_directory("/")
    many = {f"/acls/{number}": "x" * 50 for number in range(2 * ENTRIES_MAX + 1)}
    entries = Entries({**snapshot.cluster, **many}, snapshot.node)

    await write_stores(disk, "/data", entries, term_min=10_007)

    assert await content(disk.after_crash(Loss.EVERYTHING, Random(0)), "/data") == entries
    stores = await open_stores(disk, "/data", CompactionSettings())
    assert stores.cluster.term == 10_008
    await stores.close()


@pytest.mark.parametrize("place", ["backups", "nowhere"])
def test_an_id_is_completed_if_there_are_backups(tmp_path: Path, place: str) -> None:
    world = SnapshotWorld(MemoryFileSystem(), Random(0))
    files = LocalFileSystem()
    backup_id = made(world.fs, world.snapshot(), files, str(tmp_path / "backups")).index.id
    context = typer.Context(get_command(app))
    context.params["repository"] = tmp_path / place

    assert complete_backup(context, backup_id[:4]) == ([backup_id] if place == "backups" else [])
    assert complete_backup(context, "x") == []
