"""The executor's steps, without Spark and without a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.remote.execute import RemotePass, WrongHashKey
from cleaner.remote.plan import RemoteResult
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.report import PassReport
from storage.files.paths import LOG, join, segment_file
from storage.formats.manifest import SegmentRow
from tests.harness.compacted_log import CONFIG, CompactedLog
from tests.harness.remote_cleaning import LOG_DIR, Executor, plan_for_others
from tests.harness.sidecar_mode import SidecarMode
from tests.properties.test_cleaning_model import STEPS as PLAIN_STEPS
from tests.properties.test_cleaning_model import History as PlainHistory
from tests.properties.test_transaction_cleaning import STEPS as TRANSACTION_STEPS
from tests.properties.test_transaction_cleaning import History

UNTOLD: dict[str, Any] = {"file_version": 0, "created_ms": 0}
"""The fields that the broker sets when it takes an output."""


class PredictedLog(CompactedLog):
    """A log in which an executor does every pass first, which must have the same result."""

    def _execute(self, plan: CleaningPlan, stop: Callable[[float], bool]) -> PassReport | None:
        remote = plan_for_others(self.fs, plan)
        result = Executor(self.fs, remote, attempts=2).run()
        foretold = self._predicted(plan, result)
        self.fs.remove_tree(remote.folder)
        before = self.log.clean_offset
        report = super()._execute(plan, stop)
        assert report is not None
        assert result.end_offset == report.end_offset == self.log.clean_offset >= before
        assert self._sealed() == foretold
        return report

    def _predicted(
        self, plan: CleaningPlan, result: RemoteResult
    ) -> list[tuple[SegmentRow, bytes]]:
        found = {row.base_offset: [each] for each in self._sealed() for row in [each[0]]}
        for group in result.groups:
            assert list(group.sources) == [
                row for row in plan.view.sealed_rows if row in group.sources
            ]
            for row in group.sources:
                del found[row.base_offset]
            folder = join(plan_for_others(self.fs, plan).folder, group.attempt)
            found[group.sources[0].base_offset] = [
                (
                    replace(row, **UNTOLD),
                    self.fs.read_bytes(
                        join(
                            folder,
                            segment_file(row.base_offset, row.file_version, LOG, cleaned=True),
                        )
                    ),
                )
                for row in group.outputs
            ]
        return [each for base_offset in sorted(found) for each in found[base_offset]]

    def _sealed(self) -> list[tuple[SegmentRow, bytes]]:
        return [
            (replace(each.row, **UNTOLD), each.read_at(0, each.row.size))
            for each in self.log.cleaning_view().segments
        ]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(PLAIN_STEPS, max_size=25),
    st.sampled_from([1, 300, 1 << 20]),
    st.sampled_from((SidecarMode.KEPT, SidecarMode.MISSING, SidecarMode.DAMAGED)),
)
def test_an_executor_leaves_what_a_local_pass_leaves(
    steps: list[object], segment_bytes: int, sidecars: SidecarMode
) -> None:
    history = PlainHistory(1, SidecarMode.KEPT, CompactedLog().settings)
    history.log = PredictedLog(replace(CONFIG, segment_bytes=segment_bytes), sidecars=sidecars)

    for step in steps:
        history.take(step)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(TRANSACTION_STEPS, min_size=12, max_size=40),
    st.sampled_from([300, 1 << 20]),
    st.sampled_from((SidecarMode.KEPT, SidecarMode.MISSING, SidecarMode.DAMAGED)),
)
def test_an_executor_leaves_what_a_local_pass_leaves_of_transactions(
    steps: list[object], segment_bytes: int, sidecars: SidecarMode
) -> None:
    history = History(PredictedLog(replace(CONFIG, segment_bytes=segment_bytes), sidecars=sidecars))

    for step in steps:
        history.do(step)


def test_an_executor_changes_nothing_but_the_leases_folder() -> None:
    log = dirty_log()
    before = {name: log.fs.read_bytes(join(log.log.directory, name)) for name in log.files()}
    plan = plan_for_others(log.fs, log.plan())

    Executor(log.fs, plan).run()

    log.fs.remove_tree(plan.folder)
    assert before == {
        name: log.fs.read_bytes(join(log.log.directory, name)) for name in log.files()
    }


def test_another_hash_key_is_noticed_before_anything_is_read() -> None:
    log = dirty_log()
    plan = plan_for_others(log.fs, log.plan())
    log.fs.write_bytes(join(LOG_DIR, "hash.key"), b"another key of16")

    with pytest.raises(WrongHashKey, match="not the key of orders"):
        RemotePass(plan, fs=log.fs)


def dirty_log() -> CompactedLog:
    log = CompactedLog()
    log.append_segment((b"a", b"1"), (b"b", b"1"))
    log.append_segment((b"a", b"2"), (b"c", None))
    log.append_segment((b"d", b"1"))
    return log
