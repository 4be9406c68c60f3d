"""A kill between the commit of a swap and its renames hides no segment from those who verify a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cleaner.inspect.verify_keys import verify_keys
from cleaner.inspect.verify_sidecars import verify_sidecars
from protocol.wire.numbers import Offset
from storage.files.files import FileSystem
from storage.formats.log_identity import LogIdentity
from storage.log.on_disk import look_at_log
from storage.verify.log import verify_log
from tests.harness.compacted_log import DIRECTORY, CompactedLog, identity
from tests.harness.damage import flip, log_files, read_manifest, write_manifest
from tests.harness.unplaced_files import unplace

Read = Callable[[FileSystem, LogIdentity], object]
READS: dict[str, Read] = {
    "log": lambda fs, log: [
        each.text
        for each in verify_log(fs, log, was_clean=False).findings
        if "not renamed it yet" not in each.text
    ],
    "keys": lambda fs, log: [each.text for each in verify_keys(fs, log, map_bytes=1 << 20)],
    "sidecars": lambda fs, log: [each.text for each in verify_sidecars(fs, log)],
    "look": look_at_log,
}


def cleaned_log() -> CompactedLog:
    """Returns a log whose cleaned segment has the keys 20-29 at offsets below 30; the end is at 70."""
    log = CompactedLog()
    for keys in (30, 20, 20):
        log.append_segment(*((b"key-%d" % key, b"value") for key in range(keys)))
        log.clean()
    return log


def claim_too_much(log: CompactedLog) -> None:
    """Say that the dirty section is clean: now its keys occur twice."""
    log.append_segment(*((b"key-%d" % key, b"new") for key in range(30)))
    manifest = read_manifest(log.fs, DIRECTORY)
    write_manifest(log.fs, DIRECTORY, replace(manifest, clean_offset=Offset(100)))


def damage_a_sidecar(log: CompactedLog) -> None:
    for path in log_files(log.fs, DIRECTORY):
        sidecar = path.removesuffix(".log") + ".keys"
        if log.fs.exists(sidecar):
            flip(log.fs, sidecar, -1)


SPOILED = {"sound": lambda log: None, "twice": claim_too_much, "sidecar": damage_a_sidecar}


@pytest.mark.parametrize("spoiled", SPOILED)
@pytest.mark.parametrize("read", READS)
def test_staged_files_of_a_committed_swap_are_read_like_placed_ones(
    read: str, spoiled: str
) -> None:
    log = cleaned_log()
    SPOILED[spoiled](log)
    placed = READS[read](log.fs, identity())

    assert unplace(log.fs, DIRECTORY) >= 3

    assert READS[read](log.fs, identity()) == placed
    if (read, spoiled) in {("keys", "twice"), ("sidecars", "sidecar")}:
        assert placed, "nothing was found, so nothing is proven"
