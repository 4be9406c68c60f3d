"""Compares a rehearsal of a pass with the pass that follows, which must do exactly what was
predicted."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cleaner.inspect.dry_run import DryMeter, DryRun, dry_run
from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.throttle import IoRates, Throttle
from cleaner.rules.cleaning_plan import plan_pass
from cleaner.rules.pick import assess
from cleaner.rules.report import PassReport
from storage.formats.manifest import SegmentRow
from tests.harness.compacted_log import DIRECTORY, CompactedLog, never_stop
from tests.harness.sidecar_mode import SidecarMode


def rehearse(log: CompactedLog, rates: IoRates = IoRates()) -> DryRun:  # noqa: B008 - frozen
    view = log.log.cleaning_view(as_if_rolled=True)
    assessment = assess(
        view,
        log.log.config,
        log.now_ms,
        remainder=log.remainder,
        hold=log.hold,
        requested=True,
    )
    plan = plan_pass(view, assessment, now_ms=log.now_ms, stamp_ms=log.now_ms)
    meter = DryMeter(
        throttle=Throttle(clock=lambda: 0.0),
        probe=SilentProbe(),
        sleep=never_stop,
        is_stale=lambda: log.log.generation != view.generation,
    )
    keeps = log.settings.keeps_key_sidecars and log.sidecars is not SidecarMode.OFF
    return dry_run(
        log.log,
        plan,
        replace(log.settings, keeps_key_sidecars=keeps),
        meter=meter,
        monotonic=lambda: 0.0,
        rates=rates,
    )


def without_times_and_names(report: PassReport) -> PassReport:
    groups = tuple(
        replace(
            group,
            sources=tuple(nameless(row) for row in group.sources),
            outputs=tuple(nameless(row) for row in group.outputs),
        )
        for group in report.group_reports
    )
    return replace(
        report, group_reports=groups, seconds=0.0, throttled_seconds=0.0, verify_seconds=0.0
    )


def nameless(row: SegmentRow) -> SegmentRow:
    """Returns a row without the number in its file name, which only a real file has."""
    return replace(row, file_version=0)


def clean_as_found(log: CompactedLog) -> PassReport:
    """Clean with the sidecars as they are."""
    mode = log.sidecars
    log.sidecars = SidecarMode.OFF if mode is SidecarMode.OFF else SidecarMode.KEPT
    try:
        return log.clean()
    finally:
        log.sidecars = mode


def files_of(log: CompactedLog) -> dict[str, bytes]:
    return {name: log.fs.read_bytes(f"{DIRECTORY}/{name}") for name in log.files()}


def segments_of(log: CompactedLog) -> list[SegmentRow]:
    return [segment.full_row() for segment in log.log.segments]


def check_prediction(log: CompactedLog) -> tuple[DryRun, PassReport]:
    """Rehearse, then clean: both results are equal, and only the pass changes the log.

    Raises:
        CleaningAborted: both were aborted, for the same reason.
    """
    log.let_sidecars_happen()
    before, files = segments_of(log), files_of(log)
    touched: list[tuple[str, str]] = []
    log.fs.on_operation = lambda action, path: touched.append((action, path))
    try:
        predicted: DryRun | CleaningAborted = rehearse(log)
    except CleaningAborted as reason:
        predicted = reason
    log.fs.on_operation = None
    assert (segments_of(log), files_of(log)) == (before, files), "a rehearsal changes nothing"
    # The rehearsal's output goes into one file whose name it removes at once.
    assert [action for action, _ in touched[:2]] in ([], ["open", "unlink"]), touched
    assert {action for action, _ in touched[2:]} <= {"append to"}, touched

    if isinstance(predicted, CleaningAborted):
        with pytest.raises(CleaningAborted, match=re.escape(str(predicted))):
            clean_as_found(log)
        raise predicted
    done = clean_as_found(log)

    assert without_times_and_names(done) == without_times_and_names(predicted.report)
    replaced = [row for group in predicted.replaced for row in group.outputs]
    expected = sorted([*replaced, *predicted.untouched], key=lambda row: row.base_offset)
    assert [nameless(row) for row in segments_of(log)[:-1]] == [nameless(row) for row in expected]
    assert log.log.clean_offset == predicted.report.end_offset
    return predicted, done
