"""No producer id is allocated twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.producer_ids import BLOCK_SIZE, ProducerIds
from storage.files.errors import StorageError, SyncFailed
from storage.files.local_files import LocalFileSystem


async def open_store(directory: Path) -> EmbeddedMetadataStore:
    return await EmbeddedMetadataStore.open(LocalFileSystem(), str(directory))


async def test_ids_count_up_over_the_end_of_a_block(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    ids = ProducerIds(store)

    taken = [await ids.next_id() for _ in range(2 * BLOCK_SIZE + 1)]

    assert taken == list(range(2 * BLOCK_SIZE + 1))
    assert store.revision == 3, "one write for each block, not for each id"
    await store.close()


async def test_no_id_is_used_again_after_a_crash(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    before = await ProducerIds(store).next_id()
    # The store is not closed when the broker dies; only its files remain.
    await store.close()

    store = await open_store(tmp_path)
    after = await ProducerIds(store).next_id()

    assert after == before + BLOCK_SIZE
    await store.close()


async def test_two_that_share_a_store_never_give_the_same_id(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    first, second = ProducerIds(store), ProducerIds(store)

    taken = await asyncio.gather(*(ids.next_id() for ids in (first, second) for _ in range(1500)))

    assert len(set(taken)) == len(taken)
    await store.close()


async def test_an_id_whose_block_cannot_be_written_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path)
    ids = ProducerIds(store)

    def fail(_: object) -> None:
        raise SyncFailed("sync", str(tmp_path), 5, "Input/output error")

    monkeypatch.setattr("storage.files.local_files.LocalFile.sync", fail)
    with pytest.raises(StorageError):
        await ids.next_id()
    await store.close()
