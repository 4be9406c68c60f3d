"""The ledger of passes: chained, durable, bounded, and sound after any crash."""

from __future__ import annotations

import errno
from random import Random

import pytest

from storage.files.errors import DirectoryOffline, NoSpace, StorageError, SyncFailed
from storage.formats.ledger_chain import Chain
from storage.formats.ledger_entry import lines_of
from storage.ledger.cleaning_ledger import LedgerOwner
from storage.ledger.ledger_files import ledger_numbers, ledger_path
from tests.harness.ledgers import OWNER, entries_of, kinds, ledger_on
from tests.harness.memory_fs import Loss, MemoryFileSystem

FIRST = "data/cleaning-ledger/00000000000000000000.ledger"


def disk() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("data")
    fs.sync_directory("/")
    return fs


def group(pass_id: str = "p") -> dict[str, object]:
    return {
        "pass": pass_id,
        "topic": "orders",
        "topic_id": "00000000-0000-0000-0000-000000000001",
        "partition": 0,
        "sources": [],
        "outputs": [],
    }


def problems(fs: MemoryFileSystem) -> list[str]:
    """What is wrong with the chain over all files."""
    chain = Chain(None)
    found = [
        chain.take(line)
        for number in ledger_numbers(fs, "data")
        for line in lines_of(fs.read_bytes(ledger_path("data", number)))
    ]
    return [problem for problem in found if problem is not None]


def change(fs: MemoryFileSystem, path: str, old: bytes, new: bytes) -> None:
    data = fs.read_bytes(path)
    assert old in data
    fs.write_bytes(path, data.replace(old, new, 1))


def test_there_are_no_files_before_the_first_entry() -> None:
    fs = disk()

    ledger_on(fs).turn_off()

    assert fs.list("data") == []


def test_entries_are_chained_and_found_again_after_a_restart() -> None:
    fs = disk()
    ledger = ledger_on(fs)
    assert ledger.append("group", group()) == 1
    assert ledger.append("pass", group()) == 2
    ledger.close()

    again = ledger_on(fs)

    assert again.append("group", group("q")) == 3
    assert kinds(entries_of(fs)) == ["begin", "group", "pass", "group"]
    assert entries_of(fs)[0].members["directory"] == OWNER.directory_id
    assert again.head == entries_of(fs)[-1].head
    assert not problems(fs)
    assert again.breaks == 0


def test_an_entry_is_durable_when_its_number_is_known() -> None:
    fs = disk()
    ledger_on(fs).append("group", group())

    assert kinds(entries_of(fs.after_crash(Loss.EVERYTHING, Random(0)))) == ["begin", "group"]


def test_a_torn_end_is_kept_cut_off_and_told() -> None:
    fs = disk()
    ledger_on(fs).append("group", group())
    fs.open(FIRST).append([b"torn"])

    ledger_on(fs).append("pass", group())

    entries = entries_of(fs)
    assert kinds(entries) == ["begin", "group", "cut", "settled", "pass"]
    assert entries[2].members["bytes"] == 4
    assert fs.read_bytes("data/cleaning-ledger/cut.2") == b"torn"
    assert not problems(fs)


def test_damage_in_the_middle_stays_and_a_new_file_names_it() -> None:
    fs = disk()
    ledger = ledger_on(fs)
    for each in "abc":
        ledger.append("pass", group(each))
    change(fs, FIRST, b'"pass":"b"', b'"pass":"x"')
    damaged = fs.read_bytes(FIRST)

    again = ledger_on(fs)
    again.append("pass", group("d"))

    assert fs.read_bytes(FIRST) == damaged
    assert ledger_numbers(fs, "data") == [0, 4]
    begin = entries_of(fs)[-2]
    assert begin.members["broken"][0] == "00000000000000000000.ledger"
    assert begin.members["broken"][1].startswith("entry 2 is damaged")
    assert [problem.split(":")[0] for problem in problems(fs)] == ["entry 2 is damaged"]
    assert again.breaks == 1

    third = ledger_on(fs)
    third.open()
    assert third.breaks == 0


def test_a_full_file_is_followed_by_another_that_begins_with_its_last_hash() -> None:
    fs = disk()
    ledger = ledger_on(fs, bytes_max=16 * 1000)
    for number in range(20):
        ledger.append("pass", group(str(number)))

    assert len(ledger_numbers(fs, "data")) > 3
    assert not problems(fs)
    assert [each.number for each in entries_of(fs)] == list(range(entries_of(fs)[-1].number + 1))


def test_beyond_the_bound_the_oldest_file_goes_after_an_entry_says_so() -> None:
    fs = disk()
    ledger = ledger_on(fs, bytes_max=16 * 600)
    for number in range(60):
        ledger.append("pass", group(str(number)))

    entries, numbers = entries_of(fs), ledger_numbers(fs, "data")
    removed = [each for each in entries if each.kind == "removed"]
    assert numbers[0] > 0
    assert removed[-1].members["through"] == numbers[0] - 1
    assert removed[-1].members["hash"] == entries[0].previous
    assert sum(fs.size(ledger_path("data", each)) for each in numbers) < 16 * 800
    assert not problems(fs)


def test_with_no_bound_nothing_goes() -> None:
    fs = disk()
    ledger = ledger_on(fs, bytes_max=-1)
    for number in range(60):
        ledger.append("pass", group(str(number)))

    assert ledger_numbers(fs, "data") == [0]


def test_another_key_and_a_time_without_the_ledger_are_told() -> None:
    fs = disk()
    ledger_on(fs).append("pass", group())
    other = LedgerOwner(cluster_id="cluster", directory_id="directory", public_key="cd" * 32)

    ledger_on(fs, owner=other).open()
    ledger_on(fs, owner=other).turn_off()
    ledger_on(fs, owner=other).turn_off()
    ledger_on(fs, owner=other).append("pass", group())

    assert kinds(entries_of(fs)) == ["begin", "pass", "key", "off", "on", "pass"]
    assert entries_of(fs)[2].members["key"] == other.public_key


def test_a_pass_without_an_end_is_settled_across_files() -> None:
    fs = disk()
    ledger = ledger_on(fs, bytes_max=16 * 1000)
    ledger.append("group", group("open"))
    for number in range(20):
        ledger.append("pass", group(str(number)))
    assert len(ledger_numbers(fs, "data")) > 3

    ledger_on(fs).open()
    ledger_on(fs).open()

    settled = [each for each in entries_of(fs) if each.kind == "settled"]
    assert [each.members["pass"] for each in settled] == ["open"]
    assert settled[0].members["unknown"] == [1]  # Its log has no manifest.


def test_a_full_disk_writes_nothing_and_the_next_entry_follows() -> None:
    fs = disk()
    ledger = ledger_on(fs)
    ledger.append("group", group())
    fs.faults.space = 0

    with pytest.raises(NoSpace):
        ledger.append("pass", group())
    fs.faults.heal()

    assert ledger.append("pass", group()) == 2
    assert not problems(fs)


def test_a_full_disk_at_a_new_file_settles_no_pass_that_runs() -> None:
    fs = disk()
    ledger = ledger_on(fs, bytes_max=16 * 300)
    ledger.append("group", group("running"))
    fs.faults.fail("append to", errno.ENOSPC, path="cleaning-ledger")

    with pytest.raises(NoSpace):
        ledger.append("group", group("running"))

    ledger.append("group", group("running"))
    ledger.append("pass", group("running"))
    assert "settled" not in kinds(entries_of(fs))
    assert not problems(fs)
    assert entries_of(fs)[-1].kind == "pass"


def test_a_failed_sync_is_final() -> None:
    fs = disk()
    failures: list[StorageError] = []
    ledger = ledger_on(fs, failures=failures)
    ledger.append("group", group())
    fs.faults.fail("sync", errno.EIO, path="cleaning-ledger")

    with pytest.raises(SyncFailed):
        ledger.append("pass", group())
    fs.faults.heal()

    with pytest.raises(DirectoryOffline):
        ledger.append("pass", group())
    assert [type(each) for each in failures] == [SyncFailed]


def test_a_crash_at_any_operation_keeps_what_was_acknowledged_and_the_chain_goes_on() -> None:
    fs, random = disk(), Random(1)
    ledger = ledger_on(fs, bytes_max=16 * 700)
    acknowledged = -1
    states = 0

    def check(crashed: MemoryFileSystem) -> None:
        nonlocal states
        states += 1
        known = acknowledged
        again = ledger_on(crashed, bytes_max=16 * 700)
        again.append("group", group("after"))
        assert again.breaks == 0
        assert not problems(crashed)
        entries = entries_of(crashed)
        numbers = [each.number for each in entries]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        removed = {each.members["hash"] for each in entries if each.kind == "removed"}
        assert numbers[0] == 0 or entries[0].previous in removed
        written = [
            each.members["x"] for each in entries if each.kind == "pass" and "x" in each.members
        ]
        assert max(written, default=known) >= known

    def crash(_action: str, _path: str) -> None:
        for loss in (Loss.NOTHING, Loss.EVERYTHING, Loss.TORN):
            check(fs.after_crash(loss, random))

    fs.on_operation = crash
    for number in range(16):
        ledger.append("group", group(str(number)))
        ledger.append("pass", {**group(str(number)), "x": number})
        acknowledged = number
    fs.on_operation = None

    assert states > 200
    assert len(ledger_numbers(fs, "data")) > 2
