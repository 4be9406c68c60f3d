"""Quotas survive restarts and crashes, and are in effect exactly as they are stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.store import Put
from server.runtime.turns import Pace, Turns
from server.security.quotas.quota_entity import QuotaEntity, QuotaKey
from server.security.quotas.quota_store import ENTITIES_PER_WRITE, PREFIX, QuotaStore
from storage.files.errors import StorageError
from storage.files.local_files import LocalFileSystem
from tests.harness.examples import not_quick
from tests.harness.memory_fs import Loss, MemoryFileSystem

ALICE = QuotaEntity.of([("user", "alice")])
BOTH = QuotaEntity.of([("user", "alice"), ("client-id", None)])
RATE, SHARE = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE

Quotas = dict[QuotaEntity, dict[str, float]]


class Effect:
    """What the store reports, put together again."""

    def __init__(self) -> None:
        self.quotas: Quotas = {}

    def follow(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        quotas = self.quotas.setdefault(entity, {})
        if value is None:
            del quotas[key]
        else:
            quotas[key] = value
        if not quotas:
            del self.quotas[entity]


async def open_store(directory: Path) -> EmbeddedMetadataStore:
    return await EmbeddedMetadataStore.open(LocalFileSystem(), str(directory))


async def opened(store: EmbeddedMetadataStore) -> tuple[QuotaStore, Effect]:
    effect = Effect()
    quotas = QuotaStore(store, follow=effect.follow)
    await quotas.open()
    return quotas, effect


def pace() -> Pace:
    return Pace(Turns())


async def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    quotas, effect = await opened(store)
    await quotas.alter([(ALICE, {RATE: 1024.0, SHARE: 50.0}), (BOTH, {RATE: 7.0})], pace())
    await quotas.alter([(ALICE, {SHARE: None, RATE: 2048.0})], pace())
    await store.close()

    store = await open_store(tmp_path)
    again, effect_again = await opened(store)

    assert effect_again.quotas == effect.quotas == {ALICE: {RATE: 2048.0}, BOTH: {RATE: 7.0}}
    assert dict(again.all()) == effect.quotas
    await store.close()


async def test_an_entity_without_quotas_leaves_no_key(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    quotas, effect = await opened(store)
    await quotas.alter([(ALICE, {RATE: 1.0})], pace())
    await quotas.alter([(ALICE, {RATE: None, SHARE: None})], pace())
    assert (await store.range(PREFIX)).entries == ()
    assert quotas.all() == []
    assert effect.quotas == {}
    await store.close()


async def test_a_quota_of_a_later_release_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(tmp_path)
    value = '{"speed":1.0,"producer_byte_rate":5.0}'
    await store.txn((), [Put(key=PREFIX + ALICE.to_text(), value=value)])
    _, effect = await opened(store)
    assert effect.quotas == {ALICE: {RATE: 5.0}}
    assert "Invalid configuration key speed" in caplog.text
    await store.close()


async def test_a_quota_that_cannot_be_written_is_not_in_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path)
    quotas, effect = await opened(store)

    async def fail(*_: object) -> None:
        raise StorageError("the disk failed")

    monkeypatch.setattr(EmbeddedMetadataStore, "txn", fail)
    with pytest.raises(StorageError):
        await quotas.alter([(ALICE, {RATE: 1.0})], pace())
    assert effect.quotas == {}
    assert quotas.all() == []
    monkeypatch.undo()
    await store.close()


async def test_changes_at_the_same_time_do_not_lose_each_other(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    quotas, effect = await opened(store)
    await asyncio.gather(
        *(quotas.alter([(ALICE, {key: 5.0})], pace()) for key in (RATE, SHARE)),
        quotas.alter([(BOTH, {RATE: 3.0})], pace()),
    )
    assert effect.quotas == {ALICE: {RATE: 5.0, SHARE: 5.0}, BOTH: {RATE: 3.0}}
    await store.close()


async def test_a_crash_at_any_operation_leaves_the_quotas_before_or_after_the_change() -> None:
    """Every disk operation of a history of changes, with what a crash may lose."""
    disk = MemoryFileSystem()
    disk.make_directory("/data")
    disk.sync_directory("/")
    store = await EmbeddedMetadataStore.open(disk, "/data/metadata")
    quotas, effect = await opened(store)
    random = Random(1)
    left: list[tuple[MemoryFileSystem, list[Quotas]]] = []
    possible: list[Quotas] = [{}]

    def crash(*_: object) -> None:
        losses = (Loss.EVERYTHING, Loss.NOTHING, Loss.TORN)
        left.extend((disk.after_crash(loss, random), list(possible)) for loss in losses)

    disk.on_operation = crash
    for number in range(6):
        change: dict[str, float | None] = {RATE: None if number == 3 else float(number + 1)}
        before: Quotas = {entity: dict(each) for entity, each in effect.quotas.items()}
        after: Quotas = {**before, ALICE: {RATE: float(number + 1)}}
        if number == 3:
            del after[ALICE]
        possible[:] = [before, after]
        await quotas.alter([(ALICE, change)], pace())
        assert effect.quotas == after
        possible[:] = [after]
    disk.on_operation = lambda *_: None
    await store.close()

    assert left
    for crashed, expected in left:
        recovered = await EmbeddedMetadataStore.open(crashed, "/data/metadata")
        _, found = await opened(recovered)
        assert found.quotas in expected
        await recovered.close()


@not_quick
async def test_a_hundred_thousand_entities_are_loaded_and_change_in_bounded_writes(
    tmp_path: Path,
) -> None:
    entities = [QuotaEntity.of([("user", f"user-{number}")]) for number in range(100_000)]
    store = await open_store(tmp_path)
    puts = [
        Put(key=PREFIX + each.to_text(), value='{"request_percentage":1.0}') for each in entities
    ]
    await store.txn((), puts)
    await store.close()

    store = await open_store(tmp_path)
    quotas, effect = await opened(store)
    assert effect.quotas == {entity: {SHARE: 1.0} for entity in entities}
    changed = entities[: 2 * ENTITIES_PER_WRITE + 1]
    before = store.revision
    await quotas.alter([(entity, {SHARE: None}) for entity in changed], pace())
    assert store.revision == before + 3
    assert effect.quotas == {entity: {SHARE: 1.0} for entity in entities[len(changed) :]}
    await store.close()
