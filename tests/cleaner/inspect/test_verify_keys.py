"""verify_keys finds keys that occur twice in a cleaned section."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.inspect.verify_keys import verify_keys
from protocol.wire.numbers import Offset
from storage.verify.findings import Check, Severity
from tests.harness.compacted_log import DIRECTORY, CompactedLog, identity
from tests.harness.damage import flip, log_files, read_manifest, write_manifest

PLENTY = 1 << 20
LITTLE = 24 * 40
"""Room for a few keys only, so that the section is read many times."""


def log_with_versions_of_keys(*, keys: int = 30, versions: int = 3) -> CompactedLog:
    log = CompactedLog()
    for version in range(versions):
        log.append_segment(*((b"key-%d" % key, b"%d" % version) for key in range(keys)))
    return log


@pytest.mark.parametrize("map_bytes", [PLENTY, LITTLE])
def test_nothing_is_found_in_a_cleaned_log(map_bytes: int) -> None:
    log = log_with_versions_of_keys()
    log.clean()
    log.append((b"key-1", b"dirty"))

    assert read_manifest(log.fs, DIRECTORY).clean_offset == 90
    assert verify_keys(log.fs, identity(), map_bytes=map_bytes) == ()


@pytest.mark.parametrize("map_bytes", [PLENTY, LITTLE])
def test_every_superseded_record_below_the_clean_offset_is_counted(map_bytes: int) -> None:
    log = log_with_versions_of_keys()
    manifest = replace(read_manifest(log.fs, DIRECTORY), clean_offset=Offset(75))
    write_manifest(log.fs, DIRECTORY, manifest)

    findings = verify_keys(log.fs, identity(), map_bytes=map_bytes)

    assert {(each.severity, each.check) for each in findings} == {(Severity.WARNING, Check.KEYS)}
    counts = [int(each.text.split()[0]) for each in findings]
    # Keys 0-14 have their last version in [60, 75), the others in [30, 60).
    expected = 30 + 15
    assert sum(counts) == expected if map_bytes == PLENTY else sum(counts) >= expected


def test_an_uncleaned_log_has_nothing_to_look_at() -> None:
    assert verify_keys(log_with_versions_of_keys().fs, identity(), map_bytes=PLENTY) == ()


def test_a_damaged_log_is_left_to_those_who_look_at_batches() -> None:
    log = log_with_versions_of_keys()
    log.clean()
    flip(log.fs, max(log_files(log.fs, DIRECTORY), key=log.fs.size), 70)

    (finding,) = verify_keys(log.fs, identity(), map_bytes=PLENTY)

    assert finding.severity is Severity.NOTE
    assert "were not checked" in finding.text
