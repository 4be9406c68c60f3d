"""The certificates of a pass: what it replaced by what, and by which rules, for its directory's ledger.

    group entry      durable before the group's swap: sources, outputs with their digests, verdicts, and
                     the digest of what must remain, by which the output was verified
    pass entry       the end: which of these groups were swapped

A pass that swaps nothing leaves no entry: nothing has changed. If a swap fails so that nobody knows
whether its manifest is on disk, the pass leaves no end; the next start reads the manifest and settles it
(`storage/ledger/ledger_settling.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from cleaner.pacing.meter import CleaningAborted
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.record_verdict import Verdict
from cleaner.rules.report import PassReport
from cleaner.rules.step import GroupAccount
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.files.errors import NoSpace, StorageError, SwapRefused
from storage.formats.content_digest import XXH3, ContentDigest
from storage.formats.ledger_entry import GROUP, PASS, Members
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import SegmentRow
from storage.segment.cleaned_segment import CleanedSegment, CleanedSegmentWriter

READ_BYTES = 1 << 20


class Ledger(Protocol):
    """What a pass needs of a ledger; `storage.ledger.cleaning_ledger.CleaningLedger` has it."""

    def append(self, kind: str, members: Members) -> int: ...


class PassCertificates:
    """The certificates of one pass, or none if there is no ledger. Used by the pass's thread only."""

    __slots__ = (
        "_digest_kind", "_is_in_doubt", "_ledger", "_log", "_swapped", "_unswapped", "pass_id",
    )  # fmt: skip

    def __init__(
        self,
        ledger: Ledger | None = None,
        log: LogIdentity | None = None,
        *,
        digest_kind: str = XXH3,
        pass_id: str = "",
    ) -> None:
        """
        Args:
            ledger: of the log directory that holds `log`; None: the pass leaves no certificate.
            digest_kind: how the contents of outputs are digested.
            pass_id: names the pass.
        """
        # Constant after construction.
        self._ledger = ledger
        self._log = log
        self._digest_kind = digest_kind
        self.pass_id = pass_id
        # State: the numbers of the group entries, by what is known of their swaps.
        self._swapped: list[int] = []
        self._unswapped: list[int] = []
        self._is_in_doubt = False

    def watch(self, writer: CleanedSegmentWriter) -> CleanedSegmentWriter:
        """Let an output that is about to be written compute its digest. Returns it."""
        if self._ledger is not None:
            writer.digest = ContentDigest(self._digest_kind)
        return writer

    def certify(
        self,
        plan: CleaningPlan,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        account: GroupAccount,
        *,
        clean_offset: Offset | None,
        is_verified: bool,
    ) -> int | None:
        """Certify a group that is about to be swapped, durably. Returns the number of its entry.

        Args:
            plan: the one that decided, with the holds and the clock that the pass has found.
            account: of the group; its digest counts if `is_verified`.
            clean_offset: that the swap will commit; None: it commits none.

        Raises:
            StorageError: the ledger cannot be written, so the group must not be swapped.
        """
        if self._ledger is None:
            return None
        assert self._log is not None
        outputs = [(each.row, each.digest or self._digest_of(each)) for each in cleaned]
        entry = {
            **self._names(),
            **group_members(plan, sources, outputs, account.records_by_verdict),
            "remains": remains_members(account) if is_verified else None,
            "clean_offset": clean_offset,
        }
        return self._ledger.append(GROUP, entry)

    @contextmanager
    def swapping(self, number: int | None) -> Iterator[None]:
        """The body swaps the group of an entry."""
        try:
            yield
        except (SwapRefused, NoSpace):
            # Only these say for certain that no manifest lists the outputs.
            self._unswapped += [] if number is None else [number]
            raise
        except BaseException:
            self._is_in_doubt = self._ledger is not None
            raise
        self._swapped += [] if number is None else [number]

    @contextmanager
    def ended(self) -> Iterator[Callable[[PassReport], PassReport]]:
        """The body runs the pass, and hands its report over; afterwards the pass has its end.

        An end that cannot be written is no error of the pass: the next start settles it.
        """
        reports: list[PassReport] = []

        def take(report: PassReport) -> PassReport:
            reports.append(report)
            return report

        try:
            yield take
        except (CleaningAborted, SwapRefused) as reason:
            self._end({"result": "stopped", "error": str(reason)})
            raise
        except Exception as error:
            self._end({"result": "failed", "error": str(error) or repr(error)})
            raise
        self._end(end_members(reports[0]))

    def _end(self, members: Members) -> None:
        if self._ledger is None or self._is_in_doubt or not (self._swapped or self._unswapped):
            return
        numbers = {"swapped": self._swapped, "not_swapped": self._unswapped}
        try:
            self._ledger.append(PASS, {**self._names(), **members, **numbers})
        except StorageError:
            # The directory is offline, or full; its passes say so.
            return

    def _names(self) -> dict[str, Any]:
        log = self._log
        assert log is not None
        return {
            "pass": self.pass_id,
            "topic": log.topic_partition.topic,
            "topic_id": str(log.topic_id),
            "partition": log.topic_partition.partition,
        }

    def _digest_of(self, cleaned: CleanedSegment) -> str:
        """Returns the digest of an output that another process has written, by reading it."""
        digest = ContentDigest(self._digest_kind)
        for position in range(0, cleaned.row.size, READ_BYTES):
            digest.update(cleaned.read_at(position, READ_BYTES))
        return str(digest)


NO_CERTIFICATES = PassCertificates()
"""Of a pass without a ledger. Passes share it: it keeps nothing."""


def new_pass_id(stamp_ms: int) -> str:
    """Returns a name for a pass: 16 hexadecimal digits that grow with the time."""
    return f"{stamp_ms:011x}{secrets.token_hex(3)[:5]}"


def group_members(
    plan: CleaningPlan,
    sources: Sequence[SegmentRow],
    outputs: Sequence[tuple[SegmentRow, str]],
    verdicts: Mapping[Verdict, int],
) -> dict[str, Any]:
    """Returns what a group's entry says beside its names. Pure."""
    return {
        "generation": plan.view.generation,
        "reason": plan.reason.name,
        "dirty": [plan.start_offset, plan.end_offset],
        "sources": [segment_members(row) for row in sources],
        "outputs": [{**segment_members(row), "digest": digest} for row, digest in outputs],
        "verdicts": {verdict.value: count for verdict, count in verdicts.items() if count},
        "settings": settings_members(plan),
    }


def segment_members(row: SegmentRow) -> dict[str, int]:
    """Returns a segment as an entry names it. Pure."""
    return {
        "base_offset": row.base_offset,
        "version": row.file_version,
        "end_offset": row.end_offset,
        "bytes": row.size,
        "records": row.record_count,
    }


def settings_members(plan: CleaningPlan) -> dict[str, Any]:
    """Returns the settings by which a pass decides which records stay. Pure."""
    config, hold = plan.view.config, plan.hold
    return {
        "strategy": str(config.strategy),
        "history": str(config.history),
        "delete_retention_ms": config.delete_retention_ms,
        "keeps_unkeyed": config.keeps_unkeyed_records,
        "moves_unkeyed": config.moves_unkeyed_records,
        "min_segment_dead_ratio": config.min_segment_dead_ratio,
        "compares_keys": config.compaction_compare_keys,
        "hold_offset": None if hold.offset == OFFSET_MAX else hold.offset,
        "held_by": hold.by,
        "horizon_clock_ms": plan.now_ms,
        "stamp_ms": plan.stamp_ms,
    }


def remains_members(account: GroupAccount) -> dict[str, Any]:
    """Returns the account by which a group's output was verified. Pure."""
    return {"digest": f"{account.digest:032x}", "batches": account.batches}


def end_members(report: PassReport) -> dict[str, Any]:
    """Returns what the end of a completed pass says. Pure."""
    return {
        "result": "completed",
        "start_offset": report.start_offset,
        "end_offset": report.end_offset,
        "bytes_before": report.bytes_before,
        "bytes_after": report.bytes_after,
        "verdicts": {name: count for name, count in report.records_by_verdict.items() if count},
        "seconds": round(report.seconds, 3),
    }
