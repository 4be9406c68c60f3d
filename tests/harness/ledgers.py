"""Ledgers of cleaning passes on a disk in memory, and what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cleaner.passes.certificate import PassCertificates
from cleaner.passes.clean import clean
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.report import PassReport
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.formats.content_digest import XXH3
from storage.formats.ledger_entry import Entry
from storage.formats.meta_properties import MetaProperties
from storage.ledger.cleaning_ledger import CleaningLedger, LedgerOwner
from storage.ledger.ledger_files import read_entries
from storage.ledger.ledger_head import SignedHead
from storage.verify.ledger import LedgerReport, LedgerVerification, cleaned_segments
from tests.harness.compacted_log import START_MS, CompactedLog, identity, meter_of, never_stop

OWNER = LedgerOwner(cluster_id="cluster", directory_id="directory", public_key="ab" * 32)


def ledger_on(
    fs: FileSystem,
    *,
    bytes_max: int = 1 << 30,
    owner: LedgerOwner = OWNER,
    failures: list[StorageError] | None = None,
) -> CleaningLedger:
    """A ledger of the log directory `data`."""
    return CleaningLedger(
        fs,
        "data",
        owner=lambda: owner,
        bytes_max=bytes_max,
        now_ms=lambda: START_MS,
        on_failure=([] if failures is None else failures).append,
    )


def entries_of(fs: FileSystem) -> list[Entry]:
    return list(read_entries(fs, "data"))


def kinds(entries: Iterable[Entry]) -> list[str]:
    return [entry.kind for entry in entries]


def clean_certified(
    log: CompactedLog,
    ledger: CleaningLedger,
    plan: CleaningPlan | None = None,
    *,
    pass_id: str = "p",
    digest_kind: str = XXH3,
    stop: Callable[[float], bool] = never_stop,
) -> PassReport:
    """Clean a log, with certificates."""
    plan = plan or log.plan()
    certificates = PassCertificates(ledger, identity(), pass_id=pass_id, digest_kind=digest_kind)
    return clean(
        log.log.cleaning,
        plan,
        log.settings,
        meter=meter_of(log.log, plan.view.generation, stop),
        monotonic=lambda: log.now_ms / 1000,
        certificates=certificates,
    )


class CertifiedLog(CompactedLog):
    """A log whose passes leave certificates in the ledger of `data`."""

    passes = 0

    def _execute(self, plan: CleaningPlan, stop: Callable[[float], bool]) -> PassReport | None:
        type(self).passes += 1
        return clean_certified(
            self, ledger_on(self.fs), plan, pass_id=str(type(self).passes), stop=stop
        )


def label(fs: FileSystem) -> None:
    """Make `data` a log directory."""
    meta = MetaProperties(cluster_id="cluster", node_id=1, directory_id=OWNER.directory_id)
    fs.replace_durably("data/meta.properties", meta.encode())


def verified(fs: FileSystem, anchors: Sequence[SignedHead] = ()) -> LedgerReport:
    """Verify the ledger of `data` with the log of a `CompactedLog`."""
    on_disk = cleaned_segments(fs, (identity(),))
    return LedgerVerification(fs, "data", on_disk, anchors=anchors).run()
