"""The certificates of a pass: durable before each swap, and true about how it ended."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable

import pytest
import xxhash

from cleaner.pacing.meter import CleaningAborted
from cleaner.passes.certificate import PassCertificates, new_pass_id
from storage.files.errors import NoSpace, SyncFailed
from storage.files.paths import LOG, MANIFEST
from storage.formats.ledger_entry import Entry
from tests.harness.compacted_log import CompactedLog, superseded_log
from tests.harness.ledgers import clean_certified, entries_of, kinds, ledger_on


def groups(log: CompactedLog) -> list[Entry]:
    return [each for each in entries_of(log.fs) if each.kind == "group"]


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("xxh3", lambda data: xxhash.xxh3_128(data).hexdigest()),
        ("sha256", lambda data: hashlib.sha256(data).hexdigest()),
    ],
)
def test_a_certificate_says_what_was_replaced_by_what(
    kind: str, digest: Callable[[bytes], str]
) -> None:
    log = superseded_log()

    report = clean_certified(log, ledger_on(log.fs), digest_kind=kind)

    (entry,) = groups(log)
    segment = log.log.segments[0]
    data = log.fs.read_bytes(segment.path(LOG))
    (output,) = entry.members["outputs"]
    assert output["digest"] == f"{kind}:{digest(data)}"
    assert (output["base_offset"], output["version"]) == (0, segment.file_version)
    assert (output["bytes"], output["records"]) == (len(data), 3)
    assert [each["base_offset"] for each in entry.members["sources"]] == [0, 2, 4]
    assert entry.members["verdicts"] == {"kept_latest": 3, "dropped_superseded": 2}
    assert entry.members["dirty"] == [0, 5]
    assert entry.members["clean_offset"] == 5
    assert entry.members["settings"]["delete_retention_ms"] == 1000
    account = report.group_reports[0].account
    assert entry.members["remains"]["digest"] == f"{account.digest:032x}"
    end = entries_of(log.fs)[-1].members
    assert (end["result"], end["swapped"]) == ("completed", [entry.number])
    assert (end["pass"], report.pass_id) == ("p", "p")


def test_a_certificate_names_the_fence_that_the_pass_has_found() -> None:
    log = superseded_log()
    for number in range(3):
        log.append_segment((b"later", b"%d" % number))
    path = log.log.segments[0].path(LOG)
    data = log.fs.read_bytes(path)
    log.fs.overwrite(path, 64, bytes([data[64] ^ 0xFF]))

    clean_certified(log, ledger_on(log.fs))

    settings = groups(log)[0].members["settings"]
    assert settings["hold_offset"] == 0
    assert "damaged segment" in settings["held_by"]


def test_a_certificate_is_durable_before_the_manifest_is_written() -> None:
    log = superseded_log()
    seen: list[int] = []
    plan = log.plan()
    log.fs.on_operation = lambda action, path: (
        seen.append(len(groups(log))) if MANIFEST in path and action == "write" else None
    )

    clean_certified(log, ledger_on(log.fs), plan)

    assert seen == [1]


def test_a_pass_that_swaps_nothing_leaves_no_entry() -> None:
    log = superseded_log()
    clean_certified(log, ledger_on(log.fs))
    before = entries_of(log.fs)

    log.append_segment((b"new", b"1"))
    assert clean_certified(log, ledger_on(log.fs)).groups == 0

    assert entries_of(log.fs) == before


def test_a_group_that_cannot_be_certified_is_not_swapped() -> None:
    log = superseded_log()
    plan, before, files = log.plan(), log.pairs(), set(log.files())
    log.fs.faults.fail("append to", errno.ENOSPC, path="ledger")

    with pytest.raises(NoSpace):
        clean_certified(log, ledger_on(log.fs), plan)

    assert log.pairs() == before
    assert not [name for name in set(log.files()) - files if "cleaned" in name]
    log.clean()


def test_a_swap_that_is_refused_is_named_as_not_swapped() -> None:
    log = superseded_log()
    ledger, plan = ledger_on(log.fs), log.plan()
    ledger.open()

    def reconfigure(action: str, path: str) -> None:
        if action == "append to" and path.endswith(".ledger"):
            log.fs.on_operation = None
            log.log.refuse_planned_passes()

    log.fs.on_operation = reconfigure
    with pytest.raises(CleaningAborted):
        clean_certified(log, ledger, plan)

    end = entries_of(log.fs)[-1].members
    assert (end["swapped"], end["not_swapped"]) == ([], [1])
    assert end["result"] == "stopped"


def test_a_swap_of_which_nobody_knows_leaves_the_end_to_the_next_start() -> None:
    log = superseded_log()
    ledger, plan = ledger_on(log.fs), log.plan()
    ledger.open()
    log.fs.faults.fail("sync", errno.EIO, path=f"{MANIFEST}.tmp")

    with pytest.raises(SyncFailed):
        clean_certified(log, ledger, plan)

    assert kinds(entries_of(log.fs)) == ["begin", "group"]


def test_an_end_that_cannot_be_written_is_no_failure_of_the_pass() -> None:
    log = superseded_log()
    ledger, plan = ledger_on(log.fs), log.plan()
    ledger.open()

    def fill(action: str, path: str) -> None:
        if action == "rename" and path.endswith(".log.cleaned"):
            log.fs.faults.fail("append to", errno.ENOSPC, path="ledger")

    log.fs.on_operation = fill
    report = clean_certified(log, ledger, plan)

    assert report.groups == 1
    assert kinds(entries_of(log.fs)) == ["begin", "group"]


def test_without_a_ledger_outputs_are_not_digested() -> None:
    log = superseded_log()

    writer = PassCertificates().watch(log.log.cleaning.new_cleaned_segment(log.log.clean_offset))

    assert writer.digest is None
    writer.discard()


def test_names_of_passes_grow_with_the_time() -> None:
    first, second = new_pass_id(1_700_000_000_000), new_pass_id(1_700_000_000_001)

    assert len(first) == 16
    assert first < second
    assert new_pass_id(1) != new_pass_id(1)
