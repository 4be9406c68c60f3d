"""Erasures within a random history that changes strategies, undoes passes and damages segments."""

from __future__ import annotations

from collections.abc import Callable

from cleaner.kernel.kernel import siphash128
from protocol.records.record_batch import Record, build_batch
from server.erasure.intake import _tombstone
from server.erasure.looks import log_facts
from server.erasure.needs import Need, Next, need_of_records, need_of_tombstone
from server.erasure.proofs import tombstones_at
from server.erasure.state_table import ErasureState
from tests.harness.compacted_log import HASH_KEY, CompactedLog
from tests.harness.erased_log import Erased, ErasedLog
from tests.harness.log_builder import valid


class ErasedInHistory(ErasedLog):
    """The erasures of a log that other steps change, too; the tombstones outrank what is there."""

    def __init__(self, log: CompactedLog, on_tombstone: Callable[[int, Record], None]) -> None:
        """
        Args:
            on_tombstone: is called with each tombstone, and the offset at which it is.
        """
        super().__init__(0, log)
        self._on_tombstone = on_tombstone

    def request(self, key: bytes) -> Erased:
        found = self.trace(key, trusts_sidecars=True)
        trace = found.traces.get(siphash128(HASH_KEY, key))
        erased = Erased(key, found.end_offset, False)
        if trace is not None:
            record = _tombstone(self.log.log, key, trace, self.log.now_ms)
            appended = self.log.append_batch(valid(build_batch([record])))
            self._on_tombstone(appended.base_offset, record)
            self.log.roll()
            erased = Erased(key, appended.base_offset, True)
        self.erasures.append(erased)
        return erased

    def forget_proofs(self) -> None:
        """Forget what a start, or an undo, makes invalid."""
        for each in self.erasures:
            each.forget_proof()

    def _need(self, erased: Erased) -> Need:
        if erased.proof is not None:
            return Need(Next.NOTHING if self._first(erased) >= erased.bound else Next.PASS)
        fences = self.log.assess().known_fences
        facts = log_facts(
            self.log.log,
            obstacle=None,
            hold=self.log.hold,
            now_ms=self.log.now_ms,
            fence=fences[0] if fences else None,
        )
        if erased.state is not ErasureState.ERASED:
            return need_of_records(facts, erased.offset, has_tombstone=erased.has_tombstone)
        tombstone = tombstones_at(self.log.log, [erased.offset])[erased.offset]
        return need_of_tombstone(facts, erased.offset, tombstone, self.log.now_ms)
