"""The contract of every metadata store: inherit the tests and provide a `store` fixture."""

from __future__ import annotations

import asyncio

import pytest

from server.metadata.store import (
    Compare,
    Delete,
    LeaseNotFound,
    MetadataStore,
    Put,
)


async def value_of(store: MetadataStore, key: str) -> str | None:
    entry = await store.get(key)
    return entry.value if entry else None


class MetadataStoreContract:
    """The tests of the contract. Subclasses provide a `store` fixture with an empty store."""

    async def test_a_put_is_read_back_with_its_revisions(self, store: MetadataStore) -> None:
        first = await store.txn((), [Put(key="/a", value="1")])
        second = await store.txn((), [Put(key="/a", value="2")])

        entry = await store.get("/a")

        assert entry is not None
        assert entry.value == "2"
        assert entry.create_revision == first.revision
        assert entry.mod_revision == second.revision == first.revision + 1

    async def test_range_gives_the_entries_of_a_prefix_in_key_order(
        self, store: MetadataStore
    ) -> None:
        keys = ["/t/b", "/t/a", "/u", "/t", "/t/é"]
        await store.txn((), [Put(key=key, value=key) for key in keys])

        result = await store.range("/t/")

        assert [entry.key for entry in result.entries] == ["/t/a", "/t/b", "/t/é"]

    async def test_a_deleted_key_is_gone_and_may_come_again_as_new(
        self, store: MetadataStore
    ) -> None:
        await store.txn((), [Put(key="/a", value="1")])
        await store.txn((), [Delete(key="/a")])
        assert await store.get("/a") is None

        again = await store.txn((), [Put(key="/a", value="2")])

        entry = await store.get("/a")
        assert entry is not None
        assert entry.create_revision == again.revision

    async def test_a_transaction_whose_comparison_fails_changes_nothing(
        self, store: MetadataStore
    ) -> None:
        before = await store.txn((), [Put(key="/a", value="1")])

        result = await store.txn(
            [Compare(key="/a", mod_revision=0)],
            [Put(key="/a", value="2"), Put(key="/b", value="2")],
        )

        assert not result.succeeded
        assert result.revision == before.revision
        assert await value_of(store, "/a") == "1"
        assert await value_of(store, "/b") is None

    async def test_a_transaction_whose_comparisons_hold_changes_everything_in_one_revision(
        self, store: MetadataStore
    ) -> None:
        before = await store.txn((), [Put(key="/a", value="1")])

        result = await store.txn(
            [Compare(key="/a", mod_revision=before.revision), Compare(key="/b", mod_revision=0)],
            [Delete(key="/a"), Put(key="/b", value="2"), Put(key="/c", value="3")],
        )

        assert result.succeeded
        assert result.revision == before.revision + 1
        assert [entry.key for entry in (await store.range("/")).entries] == ["/b", "/c"]

    async def test_of_two_racing_creations_one_wins(self, store: MetadataStore) -> None:
        results = await asyncio.gather(
            *(
                store.txn([Compare(key="/a", mod_revision=0)], [Put(key="/a", value=str(n))])
                for n in range(8)
            )
        )

        assert sum(result.succeeded for result in results) == 1

    async def test_deleting_what_is_not_there_takes_no_revision(self, store: MetadataStore) -> None:
        before = await store.range("/")

        result = await store.txn((), [Delete(key="/nothing")])

        assert result.succeeded
        assert result.revision == before.revision

    async def test_a_watch_sees_every_change_of_its_prefix_in_order(
        self, store: MetadataStore
    ) -> None:
        start = (await store.range("/")).revision
        await store.txn((), [Put(key="/t/a", value="1"), Put(key="/u", value="1")])
        changes = store.watch("/t/", after_revision=start)

        first = await anext(changes)
        await store.txn((), [Put(key="/u", value="2")])
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await store.txn((), [Delete(key="/t/a")])
        second = await waiting

        assert [(entry.key, entry.value) for entry in first.entries] == [("/t/a", "1")]
        assert second.deleted == ("/t/a",)
        assert second.revision > first.revision

    async def test_keys_go_with_their_revoked_lease(self, store: MetadataStore) -> None:
        lease = await store.grant(60_000)
        await store.txn((), [Put(key="/mine", value="1", lease=lease), Put(key="/a", value="1")])

        await store.revoke(lease)

        assert [entry.key for entry in (await store.range("/")).entries] == ["/a"]
        with pytest.raises(LeaseNotFound):
            await store.keep_alive(lease)

    async def test_keys_go_when_their_lease_runs_out_unless_it_is_kept_alive(
        self, store: MetadataStore
    ) -> None:
        short, kept = await store.grant(50), await store.grant(1000)
        await store.txn(
            (), [Put(key="/s", value="", lease=short), Put(key="/k", value="", lease=kept)]
        )
        changes = store.watch("/s", after_revision=(await store.range("/")).revision)

        for _ in range(4):
            await asyncio.sleep(0.3)
            await store.keep_alive(kept)
        change = await asyncio.wait_for(anext(changes), 30)

        assert change.deleted == ("/s",)
        assert await store.get("/k") is not None

    async def test_a_put_with_an_unknown_lease_changes_nothing(self, store: MetadataStore) -> None:
        with pytest.raises(LeaseNotFound):
            await store.txn((), [Put(key="/a", value="1"), Put(key="/b", value="1", lease=99)])

        assert await store.get("/a") is None
