"""The SCRAM credentials in the metadata store: what a restart keeps, and decoys for unknown users."""

from __future__ import annotations

import logging

import pytest

from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.store import Put
from server.runtime.turns import Pace, Turns
from server.security.scram_changes import ScramChange, ScramDeletion, ScramRefusal, UserMechanism
from server.security.scram_credentials import ScramMechanism, ScramVerifier
from server.security.scram_store import CHANGES_MAX, DECOY_KEY, ScramStore
from storage.files.files import FileSystem
from tests.harness.memory_fs import MemoryFileSystem

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
DIRECTORY = "/metadata"


def verifier(mark: bytes = b"1", iterations: int = 4096) -> ScramVerifier:
    return ScramVerifier(
        salt=mark * 20, iterations=iterations, stored_key=mark * 32, server_key=mark * 32
    )


@pytest.fixture
def files() -> FileSystem:
    files = MemoryFileSystem()
    files.make_directory(DIRECTORY)
    return files


async def opened(
    files: FileSystem, *, keeps_decoys: bool = True
) -> tuple[EmbeddedMetadataStore, ScramStore]:
    metadata = await EmbeddedMetadataStore.open(files, DIRECTORY)
    store = ScramStore(metadata)
    await store.open(keeps_decoys=keeps_decoys)
    return metadata, store


async def change(
    store: ScramStore, changes: dict[UserMechanism, ScramChange]
) -> dict[str, ScramRefusal]:
    return await store.change(changes, Pace(Turns()))


async def test_changes_survive_a_restart(files: FileSystem) -> None:
    metadata, store = await opened(files)
    await change(store, {("a/b", SHA_256): verifier(), ("bob", SHA_512): verifier(b"2")})
    await change(store, {("a/b", SHA_256): verifier(b"3"), ("bob", SHA_512): ScramDeletion()})
    await change(store, {("carol", SHA_512): verifier(b"4")})
    await metadata.close()

    metadata, store = await opened(files)
    assert set(store.credentials()) == {("a/b", SHA_256), ("carol", SHA_512)}
    assert store.credentials_of("a/b") == {SHA_256: verifier(b"3")}
    assert store.credentials_of("bob") == {}
    await metadata.close()


async def test_more_changes_than_fit_into_a_transaction(files: FileSystem) -> None:
    metadata, store = await opened(files)
    before = metadata.revision
    changes: dict[UserMechanism, ScramChange] = {
        (f"user{n}", SHA_256): verifier() for n in range(2 * CHANGES_MAX + 1)
    }
    assert await change(store, changes) == {}
    assert metadata.revision == before + 3
    assert store.count == len(changes)
    await metadata.close()


async def test_a_deletion_that_comes_second_is_refused(files: FileSystem) -> None:
    metadata, store = await opened(files)
    await change(store, {("alice", SHA_256): verifier()})
    assert await change(store, {("alice", SHA_256): ScramDeletion()}) == {}
    late = await change(store, {("alice", SHA_256): ScramDeletion()})
    assert late == {"alice": ScramRefusal.missing()}
    await metadata.close()


async def test_an_unreadable_credential_is_skipped_with_a_warning(
    files: FileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    metadata, store = await opened(files)
    await change(store, {("alice", SHA_256): verifier()})
    await metadata.txn(
        (),
        [
            Put(key="/scram/SCRAM-SHA-256/bob", value='{"iterations":1}'),
            Put(key="/scram/SCRAM-SHA-1/carol", value=verifier().to_json()),
        ],
    )
    await metadata.close()
    with caplog.at_level(logging.WARNING):
        metadata, store = await opened(files)
    assert store.credentials() == (("alice", SHA_256),)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    await metadata.close()


async def test_the_decoys_of_a_user_stay_the_same_after_a_restart(files: FileSystem) -> None:
    metadata, store = await opened(files)
    decoys = {each: store.verifier_or_decoy(each, "nobody") for each in ScramMechanism}
    assert decoys[SHA_256].salt != store.verifier_or_decoy(SHA_256, "nobody2").salt
    assert decoys[SHA_256].salt != decoys[SHA_512].salt
    await metadata.close()
    metadata, store = await opened(files)
    assert decoys == {each: store.verifier_or_decoy(each, "nobody") for each in ScramMechanism}
    await metadata.close()


async def test_a_broker_without_sasl_writes_nothing(files: FileSystem) -> None:
    metadata, _ = await opened(files, keeps_decoys=False)
    assert metadata.revision == 0
    assert await metadata.get(DECOY_KEY) is None
    await metadata.close()


async def test_a_decoy_has_the_shape_of_most_credentials(files: FileSystem) -> None:
    metadata, store = await opened(files)
    await change(store, {("a", SHA_512): verifier(iterations=8192), ("b", SHA_512): verifier()})
    await change(store, {("c", SHA_512): verifier(b"3", iterations=8192)})
    decoy = store.verifier_or_decoy(SHA_512, "nobody")
    assert (decoy.iterations, len(decoy.salt), len(decoy.stored_key)) == (8192, 20, 64)
    await change(store, {("a", SHA_512): ScramDeletion(), ("c", SHA_512): ScramDeletion()})
    assert store.verifier_or_decoy(SHA_512, "nobody").iterations == 4096
    await metadata.close()


async def test_a_known_user_gets_its_own_verifier(files: FileSystem) -> None:
    metadata, store = await opened(files)
    await change(store, {("alice", SHA_256): verifier()})
    assert store.verifier_or_decoy(SHA_256, "alice") == verifier()
    assert store.verifier_or_decoy(SHA_512, "alice") != verifier()
    await metadata.close()
