"""Verify a whole data directory, as `kompakt dump-log --verify --keys` does."""

from __future__ import annotations

from cleaner.verify_keys import verify_keys
from cleaner.verify_sidecars import verify_sidecars
from server.verify_metadata import verify_metadata
from server.verify_topics import verify_topics
from storage.files import FileSystem
from storage.findings import Finding, Severity
from storage.log_identity import LogIdentity
from storage.verify import check_start_counter, find_logs
from storage.verify_log import verify_log

KEY_MAP_BYTES = 1 << 24


def findings_in(fs: FileSystem, path: str) -> list[Finding]:
    """Everything there is to say of a data directory."""
    found = find_logs(fs, path)
    assert found is not None, f"{path} is no data directory"
    findings = list(found.findings)
    if found.metadata is not None:
        findings += verify_metadata(fs, found.metadata)
        findings += verify_topics(fs, found)
    reports = []
    for identity in found.logs:
        reports.append(verify_log(fs, identity, was_clean=found.was_clean))
        findings += reports[-1].findings
        findings += verify_sidecars(fs, identity)
        findings += verify_keys(fs, identity, map_bytes=KEY_MAP_BYTES)
    return findings + list(check_start_counter(found, reports))


def errors_in(fs: FileSystem, path: str) -> list[str]:
    """What is damaged or missing in a data directory."""
    return [str(each) for each in findings_in(fs, path) if each.severity is Severity.ERROR]


def lies_in(fs: FileSystem, identity: LogIdentity) -> list[str]:
    """What a log's sound key sidecars say that is not so."""
    findings = verify_sidecars(fs, identity)
    return [str(each) for each in findings if each.severity is Severity.ERROR]
