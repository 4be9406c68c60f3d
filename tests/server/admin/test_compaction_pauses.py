"""Pauses survive restarts and crashes of the broker."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from cleaner.pacing.paused import Paused
from server.admin.compaction_pauses import CompactionPauses
from server.metadata.embedded_store import EmbeddedMetadataStore
from storage.files.errors import StorageError
from storage.files.local_files import LocalFileSystem

ORDERS, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)
NOW_MS = 1_700_000_000_000


async def open_store(directory: Path) -> EmbeddedMetadataStore:
    return await EmbeddedMetadataStore.open(LocalFileSystem(), str(directory))


def pauses_in(store: EmbeddedMetadataStore) -> CompactionPauses:
    return CompactionPauses(store, clock_ms=lambda: NOW_MS)


async def test_pauses_survive_a_restart_and_are_reported(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    pauses = pauses_in(store)
    told: list[Paused] = []
    pauses.when_changed(told.append)
    await pauses.pause(ORDERS)
    await pauses.pause(OTHER, 3)
    await pauses.pause()
    await store.close()

    store = await open_store(tmp_path)
    again = pauses_in(store)
    await again.open({ORDERS, OTHER})

    expected = Paused(
        everything=True, topics=frozenset({ORDERS}), partitions=frozenset({(OTHER, 3)})
    )
    assert again.paused == told[-1] == expected
    assert told[0] == Paused()
    assert again.since_ms(OTHER, 3) == NOW_MS
    assert again.since_ms(OTHER, None) is None
    await store.close()


async def test_a_wider_resume_ends_the_narrower_pauses(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    pauses = pauses_in(store)
    for topic_id, partition in ((ORDERS, None), (ORDERS, 1), (ORDERS, 11), (OTHER, 1)):
        await pauses.pause(topic_id, partition)

    await pauses.resume(ORDERS)
    assert pauses.paused == Paused(partitions=frozenset({(OTHER, 1)}))
    await pauses.resume()
    assert pauses.paused == Paused()
    assert (await store.range("/paused/")).entries == ()
    await store.close()


async def test_a_partition_is_resumed_alone(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    pauses = pauses_in(store)
    for partition in (1, 11):
        await pauses.pause(ORDERS, partition)

    await pauses.resume(ORDERS, 1)

    assert pauses.paused.partitions == {(ORDERS, 11)}
    await store.close()


async def test_the_pauses_of_a_deleted_topic_are_removed(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    await pauses_in(store).pause(ORDERS)
    await pauses_in(store).pause(OTHER, 0)

    pauses = pauses_in(store)
    await pauses.open({OTHER})

    assert pauses.paused == Paused(partitions=frozenset({(OTHER, 0)}))
    assert len((await store.range("/paused/")).entries) == 1
    await store.close()


async def test_a_pause_that_cannot_be_made_durable_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path)
    pauses = pauses_in(store)

    async def fail(*_: object) -> None:
        raise StorageError("no")

    monkeypatch.setattr(EmbeddedMetadataStore, "txn", fail)
    with pytest.raises(StorageError):
        await pauses.pause(ORDERS)

    assert pauses.paused == Paused()
    monkeypatch.undo()
    await store.close()
