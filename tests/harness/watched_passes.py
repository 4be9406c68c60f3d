"""A log whose passes are watched; they leave certificates, move records without a key, meet damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.certificate import PassCertificates
from cleaner.passes.clean import PlanOutdated, clean
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.report import PassReport
from storage.formats.ledger_entry import UNDONE
from storage.formats.log_config import LogConfig
from storage.formats.manifest import SegmentRow
from storage.log.cleaning import Undone
from tests.harness.compacted_log import CompactedLog, identity, meter_of, never_stop
from tests.harness.ledgers import label, ledger_on
from tests.harness.memory_fs import Loss
from tests.harness.sidecar_mode import SidecarMode
from tests.harness.spoiled_segments import SpoiledSegments
from tests.harness.unkeyed_log import AsideLog


class PassWatch(Protocol):
    """What a test does around each pass."""

    def pass_begins(self) -> None: ...
    def pass_ends(self) -> None:
        """The pass has ended, also early: because it met damage after a swap."""


class WatchedLog(CompactedLog):
    """The log, its ledger in `data`, and the log that takes its records without a key."""

    def __init__(
        self,
        config: LogConfig,
        settings: CleanerSettings,
        watch: PassWatch,
        *,
        sidecars: SidecarMode = SidecarMode.KEPT,
    ) -> None:
        super().__init__(config, settings, sidecars=sidecars)
        self._watch = watch
        self._passes = 0
        self.spoiled = SpoiledSegments()
        self.aside = AsideLog.created(self.fs, self.log)
        label(self.fs)
        self.fs.sync_directory("data")

    def reopen(self, *, is_clean: bool, loss: Loss = Loss.EVERYTHING) -> None:
        super().reopen(is_clean=is_clean, loss=loss)
        self.aside = AsideLog.opened(self.fs, self.log)
        ledger_on(self.fs).open()

    def undo(self, number: int) -> Undone:
        """Undo a pass as the broker does: with an entry in the ledger."""
        undone = self.log.undo_pass(number)
        members = {
            "topic": self.log.topic_partition.topic,
            "topic_id": str(self.log.topic_id),
            "partition": self.log.topic_partition.partition,
            "number": number,
            "sources": [named(row) for row in undone.sources],
            "outputs": [named(row) for row in undone.outputs],
            "clean_offset": undone.clean_offset,
        }
        ledger_on(self.fs).append(UNDONE, members)
        # The cleaner looks at the log as after a start.
        self.remainder = None
        return undone

    def execute_once(self, plan: CleaningPlan) -> None:
        """Execute a plan as it is, however old."""
        self._execute(plan, never_stop)

    def _execute(self, plan: CleaningPlan, stop: Callable[[float], bool]) -> PassReport | None:
        """Run one pass. Returns None if it ended early because of damage; the next one knows of it."""
        self._passes += 1
        self.aside.now_ms = self.now_ms
        self._watch.pass_begins()
        try:
            return clean(
                self.log.cleaning,
                plan,
                self.settings,
                meter=meter_of(self.log, plan.view.generation, stop),
                monotonic=lambda: self.now_ms / 1000,
                certificates=PassCertificates(
                    ledger_on(self.fs), identity(), pass_id=str(self._passes)
                ),
                mover=self.aside,
            )
        except PlanOutdated:
            # Also without damage: a crash may have torn a key sidecar, which is never synced.
            return None
        except (CleaningAborted, VerificationFailed):
            # Damage may look like a wrong sidecar.
            if not self.spoiled:
                raise
            return None
        finally:
            self._watch.pass_ends()

    def _check_sidecars(self, before: set[str]) -> None:
        """A damaged segment cannot be compared with its sidecar: see `EveryFeature.check`."""


def named(row: SegmentRow) -> dict[str, int]:
    return {"base_offset": row.base_offset, "version": row.file_version}
