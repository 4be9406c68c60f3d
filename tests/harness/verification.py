"""Verifies a whole data directory, like `kompakt dump-log --verify --keys`."""

from __future__ import annotations

from cleaner.inspect.verify_keys import verify_keys
from cleaner.inspect.verify_sidecars import verify_sidecars
from cli.dump.verify_metadata import verify_metadata
from cli.dump.verify_topics import verify_topics
from storage.files.files import FileSystem
from storage.formats.log_identity import LogIdentity
from storage.verify.findings import Finding, Severity
from storage.verify.log import verify_log
from storage.verify.verify import check_start_counter, find_logs

KEY_MAP_BYTES = 1 << 24


def findings_in(fs: FileSystem, path: str) -> list[Finding]:
    """Returns all findings in a data directory."""
    found = find_logs(fs, path)
    assert found is not None, f"{path} is not a data directory"
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
    """Returns the findings of damaged or missing files."""
    return [str(each) for each in findings_in(fs, path) if each.severity is Severity.ERROR]


def lies_in(fs: FileSystem, identity: LogIdentity) -> list[str]:
    """Returns where a log's valid key sidecars are inconsistent with it."""
    findings = verify_sidecars(fs, identity)
    return [str(each) for each in findings if each.severity is Severity.ERROR]
