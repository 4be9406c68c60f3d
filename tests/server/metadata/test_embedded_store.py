"""The embedded metadata store: its contract, its files, a model, and crashes."""

from __future__ import annotations

import asyncio
import random
import re
import stat
import struct
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch_scan import crc32c
from replog.offline_merge import child_process
from replog.offline_merge.plan import MergePlan
from replog.trigger import CompactionSettings, SnapshotterName
from server.metadata import embedded_store
from server.metadata import log as metadata_log
from server.metadata import machine as metadata_machine
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.metadata.log import MetadataLog, read_machine
from server.metadata.store import Compare, Delete, Put, RevisionCompacted
from storage.files.errors import (
    CorruptLog,
    DamagedFile,
    FormatFromTheFuture,
    NoSpace,
    StorageError,
    SyncFailed,
)
from storage.files.local_files import LocalFileSystem
from tests.harness.examples import examples
from tests.server.metadata_store_contract import MetadataStoreContract


async def open_store(
    directory: Path, settings: CompactionSettings | None = None
) -> EmbeddedMetadataStore:
    return await EmbeddedMetadataStore.open(LocalFileSystem(), str(directory), settings)


def often(floor_bytes: int) -> CompactionSettings:
    """Returns settings with which a snapshot is due each time the log has grown by so much."""
    return CompactionSettings(u=1.0, floor_bytes=floor_bytes, catchup_entries=0)


async def contents(store: EmbeddedMetadataStore) -> dict[str, str]:
    return {entry.key: entry.value for entry in (await store.range("")).entries}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedMetadataStore]:
    store = await open_store(tmp_path / "metadata")
    yield store
    await store.close()


class TestEmbeddedMetadataStore(MetadataStoreContract):
    """The embedded store fulfils the contract."""


async def put_and_close(
    directory: Path, *values: str, settings: CompactionSettings | None = None
) -> None:
    store = await open_store(directory, settings)
    for value in values:
        await store.txn((), [Put(key=f"/{value}", value=value)])
    await store.close()


def found(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


def only_file(directory: Path, pattern: str) -> Path:
    (path,) = directory.glob(pattern)
    return path


def only_log(directory: Path) -> Path:
    return only_file(directory, "*.replog")


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    await store.txn((), [Put(key="/a", value="1"), Put(key="/b", value="ü")])
    lease = await store.grant(60_000)
    await store.txn((), [Put(key="/c", value="3", lease=lease), Delete(key="/a")])
    before = await store.range("")
    await store.close()

    store = await open_store(tmp_path)

    assert await store.range("") == before
    await store.keep_alive(lease)
    await store.revoke(lease)
    assert await contents(store) == {"/b": "ü"}
    await store.close()


async def test_only_the_owner_may_read_the_store_which_holds_verifiers_of_passwords(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "metadata"
    store = await open_store(directory)
    await store.txn((), [Put(key="/a", value="1")])
    await store.close()
    # As an earlier release left it.
    directory.chmod(0o755)
    for file in directory.iterdir():
        file.chmod(0o644)

    store = await open_store(directory, often(1_000))
    await store.txn((), [Put(key="/large", value="x" * 2_000)])
    await store.txn((), [Put(key="/b", value="1")])
    await store.close()

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()}
    assert any(name.endswith(".checkpoint") for name in modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


async def test_a_change_whose_caller_was_cancelled_happens_whole(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    task = asyncio.ensure_future(store.txn((), [Put(key="/a", value="1")]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await store.txn((), [Put(key="/b", value="1")])

    assert await contents(store) == {"/a": "1", "/b": "1"}
    await store.close()
    assert await reopened(tmp_path) == {"/a": "1", "/b": "1"}


async def reopened(directory: Path) -> dict[str, str]:
    store = await open_store(directory)
    try:
        return await contents(store)
    finally:
        await store.close()


async def test_a_log_larger_than_its_snapshot_is_replaced_by_a_new_snapshot(
    tmp_path: Path,
) -> None:
    store = await open_store(tmp_path, often(2_000))
    for number in range(200):
        await store.txn((), [Put(key=f"/{number % 7}", value=str(number))])
    before = await store.range("")
    await store.close()

    assert only_file(tmp_path, "*.checkpoint").stat().st_size > 0
    assert only_log(tmp_path).stat().st_size < 2_500
    store = await open_store(tmp_path)
    assert await store.range("") == before
    await store.close()


async def test_a_quiet_broker_takes_its_snapshot_before_it_must(tmp_path: Path) -> None:
    """On the way to 2,000 bytes of log, only the quiet one snapshots, at four fifths."""
    for is_quiet in (False, True):
        directory = tmp_path / str(is_quiet)
        store = await EmbeddedMetadataStore.open(
            LocalFileSystem(), str(directory), often(2_000), is_quiet=partial(bool, is_quiet)
        )
        while store.facts().log_bytes < 1_700 and not found(directory, "*.checkpoint"):
            await store.txn((), [Put(key="/a", value="x" * 20)])
        await store.close()

    assert found(tmp_path / "False", "*.checkpoint") == []
    assert len(found(tmp_path / "True", "*.checkpoint")) == 1


async def test_a_watch_that_begins_before_the_history_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_machine, "HISTORY_REVISIONS_MAX", 3)
    store = await open_store(tmp_path)
    for number in range(5):
        await store.txn((), [Put(key="/a", value=str(number))])

    with pytest.raises(RevisionCompacted) as gone:
        await anext(store.watch("/", after_revision=1))

    assert gone.value.oldest == 3
    assert (await anext(store.watch("/", after_revision=2))).revision == 3
    await store.close()


@pytest.mark.parametrize("lost", range(1, 20))
async def test_a_transaction_torn_at_any_byte_is_cut_off_and_saved(
    tmp_path: Path, lost: int
) -> None:
    await put_and_close(tmp_path, "a", "b")
    path = only_log(tmp_path)
    path.write_bytes(path.read_bytes()[:-lost])

    assert await reopened(tmp_path) == {"/a": "a"}
    assert only_file(tmp_path, "cut.*").stat().st_size > 0
    assert await reopened(tmp_path) == {"/a": "a"}


async def test_a_last_transaction_with_a_sector_of_zeros_counts_as_torn(tmp_path: Path) -> None:
    await put_and_close(tmp_path, "a", "b" * 2_000)
    path = only_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[1024:1536] = bytes(512)
    path.write_bytes(data)

    assert await reopened(tmp_path) == {"/a": "a"}


async def test_a_damaged_transaction_before_the_last_is_refused(tmp_path: Path) -> None:
    await put_and_close(tmp_path, "first", "second", "third")
    path = only_log(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"second", b"sec0nd"))

    with pytest.raises(CorruptLog, match="a valid frame follows a damaged one"):
        await open_store(tmp_path)


async def test_a_flipped_bit_in_the_last_transaction_is_not_taken_for_a_torn_one(
    tmp_path: Path,
) -> None:
    await put_and_close(tmp_path, "first", "second")
    path = only_log(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"second", b"sec0nd"))

    with pytest.raises(CorruptLog, match="checksum"):
        await open_store(tmp_path)


async def test_a_flipped_bit_in_a_snapshot_is_refused(tmp_path: Path) -> None:
    await put_and_close(tmp_path, "first", "second", "third", settings=often(100))
    path = only_file(tmp_path, "*.checkpoint")
    path.write_bytes(path.read_bytes().replace(b"first", b"f1rst"))

    with pytest.raises(DamagedFile, match="so the state cannot be rebuilt here: restore the direc"):
        await open_store(tmp_path)


async def test_a_log_of_a_later_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    await put_and_close(tmp_path, "a")
    path = only_log(tmp_path)
    header = bytearray(path.read_bytes()[:20])
    header[5] = 2
    path.write_bytes(header + struct.pack(">I", crc32c(header)))
    before = path.read_bytes()

    with pytest.raises(FormatFromTheFuture, match="later release"):
        await open_store(tmp_path)

    assert path.read_bytes() == before


async def test_a_missing_log_between_others_is_refused(tmp_path: Path) -> None:
    await put_and_close(tmp_path, "a", "b", "c")
    data = only_log(tmp_path).read_bytes()
    second, third = (match.start() for match in list(re.finditer(b"KRLF", data))[1:])
    only_log(tmp_path).write_bytes(data[:second] + data[third:])

    with pytest.raises(CorruptLog, match="index 2 is missing"):
        await open_store(tmp_path)


async def test_after_a_failed_sync_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path)
    await store.txn((), [Put(key="/a", value="1")])

    def fail(_: object) -> None:
        raise SyncFailed("sync", str(tmp_path), 5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("storage.files.local_files.LocalFile.sync", fail)
        with pytest.raises(SyncFailed):
            await store.txn((), [Put(key="/b", value="1")])

    with pytest.raises(StorageError, match="out of service"):
        await store.txn((), [Put(key="/c", value="1")])
    assert await contents(store) == {"/a": "1"}
    await store.close()


KEYS = st.sampled_from(["/a", "/b", "/ab", "/c/d", "/c/é"])
STEPS = st.lists(
    st.one_of(
        st.builds(lambda key, value: Put(key=key, value=value), KEYS, st.text(max_size=4)),
        st.builds(lambda key: Delete(key=key), KEYS),
        st.just("restart"),
        st.builds(lambda key: Compare(key=key, mod_revision=0), KEYS),
    ),
    max_size=25,
)


@settings(max_examples=examples(25), deadline=None)
@given(steps=STEPS)
def test_the_store_agrees_with_a_dictionary_over_restarts_and_snapshots(
    steps: list[Put | Delete | Compare | str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def run(directory: Path) -> None:
        model: dict[str, str] = {}
        store = await open_store(directory, often(400))
        for step in steps:
            if isinstance(step, Put):
                await store.txn((), [step])
                model[step.key] = step.value
            elif isinstance(step, Delete):
                await store.txn((), [step])
                model.pop(step.key, None)
            elif isinstance(step, Compare):
                result = await store.txn([step], [Put(key=step.key, value="new")])
                assert result.succeeded == (step.key not in model)
                model.setdefault(step.key, "new")
            else:
                await store.close()
                store = await open_store(directory, often(400))
            assert await contents(store) == dict(sorted(model.items()))
        await store.close()
        assert await reopened(directory) == model

    asyncio.run(run(tmp_path_factory.mktemp("model")))


async def test_large_transactions_do_what_small_ones_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(11)
    histories = [
        [
            Put(key=f"/{rng.randrange(40)}", value=str(number))
            if rng.random() < 0.6
            else Delete(key=f"/{rng.randrange(40)}")
            for number in range(rng.randrange(1, 30))
        ]
        for _ in range(60)
    ]
    found = []
    for inline_max in (1_000, 1):
        monkeypatch.setattr(embedded_store, "INLINE_OPERATIONS_MAX", inline_max)
        monkeypatch.setattr(metadata_machine, "ELEMENTS_ENCODED_AT_ONCE", inline_max)
        directory = tmp_path / str(inline_max)
        store = await open_store(directory, often(400))
        for operations in histories:
            await store.txn((), operations)
        watch = store.watch("/", after_revision=0)
        changes = [await anext(watch) for _ in range(20)]
        in_memory = await store.range("/")
        await store.close()
        store = await open_store(directory)
        assert await store.range("/") == in_memory
        await store.close()
        files = {path.name: path.read_bytes() for path in directory.glob("*.[rc]*")}
        found.append((in_memory, changes, files))
    assert found[0] == found[1]


def test_a_log_cut_at_a_random_byte_holds_a_prefix_of_the_transactions(tmp_path: Path) -> None:
    """A crash may leave any prefix of the last frame; the frames before it are synced."""
    asyncio.run(put_and_close(tmp_path / "whole", *"abcdefgh"))
    data = only_log(tmp_path / "whole").read_bytes()
    for number, end in enumerate(random.Random(7).sample(range(len(data)), 40)):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / only_log(tmp_path / "whole").name).write_bytes(data[:end])

        found = asyncio.run(reopened(directory))

        assert list(found) == [f"/{letter}" for letter in "abcdefgh"[: len(found)]]
        assert data.count(b"KRLF", 0, end) - len(found) in (0, 1)


async def test_transactions_go_on_while_a_large_snapshot_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, begun = threading.Event(), threading.Event()
    write = MetadataLog.write_snapshot

    def slow(log: MetadataLog) -> None:
        begun.set()
        may_write.wait(10)
        write(log)

    monkeypatch.setattr(MetadataLog, "write_snapshot", slow)
    store = await open_store(tmp_path, often(150_000))
    for number in range(300):
        await store.txn((), [Put(key=f"/{number}", value="x" * 1_000)])
        if begun.is_set():
            break
    assert begun.is_set(), "no snapshot has begun"
    before = await store.range("")
    await store.txn((), [Put(key="/later", value="1"), Delete(key="/0")])
    may_write.set()
    await store.close()

    machine = read_machine(LocalFileSystem(), str(tmp_path))
    snapshot = only_file(tmp_path, "*.checkpoint")
    assert int(snapshot.name[:20]) == before.revision + 1, "it has the state when it began"
    assert machine.entries["/later"].value == "1"
    assert "/0" not in machine.entries
    assert machine.revision == before.revision + 1


MERGED = replace(often(100_000), snapshotter=SnapshotterName.OFFLINE_MERGE)


@pytest.fixture
def _merged_if_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "MERGED_BYTES_MIN", 0)


async def put_values(store: EmbeddedMetadataStore, *, keys: int, values: int) -> None:
    for number in range(values):
        await store.txn((), [Put(key=f"/{number % keys}", value=f"{number} {'x' * 500}")])


@pytest.mark.usefixtures("_merged_if_small")
async def test_a_child_process_makes_the_snapshots_if_the_property_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plans: list[str] = []
    command = child_process.child_command

    def recorded(plan: MergePlan) -> list[str]:
        plans.append(plan.to_json())
        return command(plan)

    monkeypatch.setattr(child_process, "child_command", recorded)
    store = await open_store(tmp_path / "metadata", MERGED)
    lease = await store.grant(3_600_000)
    await store.txn((), [Put(key="/leased", value="1", lease=lease)])
    await put_values(store, keys=400, values=1_000)
    await asyncio.gather(*store._snapshotting)
    before = await store.range("")
    facts = store.facts()
    await store.close()

    assert plans
    assert not caplog.records
    assert facts.disk_bytes <= facts.bound_bytes
    again = await open_store(tmp_path / "metadata", MERGED)
    assert await again.range("") == before
    await again.close()


@pytest.mark.usefixtures("_merged_if_small")
async def test_if_the_child_process_fails_the_store_makes_the_snapshot_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child_process, "child_command", lambda _: ["/bin/false"])
    store = await open_store(tmp_path / "metadata", MERGED)
    await put_values(store, keys=400, values=600)
    await asyncio.gather(*store._snapshotting)
    before = await store.range("")
    await store.close()

    assert "making one in this process" in caplog.text
    assert found(tmp_path / "metadata", "*.checkpoint")
    again = await open_store(tmp_path / "metadata", MERGED)
    assert await again.range("") == before
    await again.close()


@pytest.mark.usefixtures("_merged_if_small")
async def test_a_stop_ends_the_child_process_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "child_command", lambda _: ["/bin/sleep", "3600"])
    store = await open_store(tmp_path / "metadata", MERGED)
    await put_values(store, keys=400, values=600)
    assert store._snapshotting
    before = await store.range("")
    await store.close()

    assert not found(tmp_path / "metadata", "*.checkpoint*")
    again = await open_store(tmp_path / "metadata")
    assert await again.range("") == before
    await again.close()


async def test_a_snapshot_that_fails_leaves_the_store_in_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise NoSpace("append to", str(tmp_path), 28, "No space left on device")

    monkeypatch.setattr(embedded_store, "RETRY_SECONDS", 0.0)
    store = await open_store(tmp_path, often(100))
    with monkeypatch.context() as patched:
        patched.setattr("replog.checkpoints.SnapshotWriter.step", fail)
        await store.txn((), [Put(key="/a", value="x" * 200)])
    assert "could not write a snapshot" in caplog.text
    assert not found(tmp_path, "*.part")

    await store.txn((), [Put(key="/b", value="1")])
    await store.close()

    assert found(tmp_path, "*.checkpoint")
    assert set(await reopened(tmp_path)) == {"/a", "/b"}


@pytest.mark.parametrize("size", [100, 200_000], ids=["small", "large"])
async def test_a_snapshot_that_fails_unexpectedly_is_given_up_and_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    attempts = []

    def fail(*_: object) -> None:
        attempts.append(1)
        raise MemoryError

    store = await open_store(tmp_path, often(size))
    with monkeypatch.context() as patched:
        patched.setattr("replog.checkpoints.SnapshotWriter.step", fail)
        for number in range(20):
            await store.txn((), [Put(key=f"/{number}", value="x" * size)])
            await asyncio.gather(*store._snapshotting)
    assert len(attempts) == 1, "each transaction tries again"
    assert not store._log.compactor.is_snapshotting
    assert not found(tmp_path, "*.part")

    store._next_attempt_s = 0.0
    await store.txn((), [Put(key="/later", value="1")])
    await asyncio.gather(*store._snapshotting)
    assert found(tmp_path, "*.checkpoint")
    await store.close()


async def test_the_facts_for_metrics_follow_the_files(tmp_path: Path) -> None:
    store = await open_store(tmp_path, often(2_000))
    for number in range(100):
        await store.txn((), [Put(key=f"/{number}", value="x" * 100)])
    facts = store.facts()
    await store.close()

    sizes = [path.stat().st_size for path in found(tmp_path, "*")]
    assert facts.disk_bytes == sum(sizes) <= facts.bound_bytes
    assert facts.snapshot_bytes == only_file(tmp_path, "*.checkpoint").stat().st_size
    assert facts.snapshot_seconds is not None
