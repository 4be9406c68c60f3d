"""The commit of an executor's result; results that do not match the plan leave the log unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cleaner.pacing.meter import CleaningAborted
from cleaner.passes.certificate import PassCertificates
from cleaner.passes.mark import Marked
from cleaner.remote.commit import ResultRefused
from cleaner.remote.execute import LeaseGone
from cleaner.remote.plan import GroupResult, RemotePlan, RemoteResult
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.hold import Hold
from cleaner.rules.record_verdict import Verdict
from protocol.wire.numbers import Offset
from storage.files.errors import SwapRefused
from storage.files.local_files import LocalFileSystem
from storage.files.paths import KEYS, segment_file
from tests.harness.compacted_log import CONFIG, DIRECTORY, identity
from tests.harness.ledgers import entries_of, kinds, label, ledger_on, verified
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.remote_cleaning import (
    Executor,
    RemotelyCleaned,
    output_path,
    plan_for_others,
)
from tests.harness.sidecar_lies import LIES_OF_ENTRIES, tell_somewhere
from tests.harness.sidecar_lies import Change as Lie
from tests.harness.verification import lies_in

Change = Callable[[RemoteResult], RemoteResult]


class Scene:
    """A log of two groups, its plan, and an executor's result."""

    def __init__(self) -> None:
        self.log = RemotelyCleaned(replace(CONFIG, segment_bytes=200))
        for number in range(4):
            self.log.append((b"a", b"%d" % number), (b"b%d" % number, b"1"))
            self.log.append((b"c", b"%d" % number), (b"d%d" % number, None))
            self.log.roll()
        self.plan = self.log.plan()
        self.remote: RemotePlan = plan_for_others(self.log.fs, self.plan)
        self.result: RemoteResult = Executor(self.log.fs, self.remote).run()
        assert len(self.result.groups) >= 2
        self.before = self.state()

    def state(self) -> tuple[object, ...]:
        return (
            self.log.records(),
            self.log.log.clean_offset,
            [name for name in self.log.files() if name != "manifest" and KEYS not in name],
        )

    def refuses(self, result: RemoteResult, match: str) -> None:
        with pytest.raises(ResultRefused, match=match):
            self.log.commit(self.plan, result)
        assert self.state() == self.before


def first(result: RemoteResult, change: Callable[[GroupResult], GroupResult]) -> RemoteResult:
    return replace(result, groups=(change(result.groups[0]), *result.groups[1:]))


def with_account(**changes: object) -> Change:
    return lambda result: first(
        result,
        lambda group: replace(group, account=replace(group.account, **changes)),  # type: ignore[arg-type]
    )


def with_output(**changes: Any) -> Change:
    return lambda result: first(
        result,
        lambda group: replace(
            group, outputs=(replace(group.outputs[0], **changes), *group.outputs[1:])
        ),
    )


def test_a_result_is_committed_and_its_sidecars_say_what_the_segments_hold() -> None:
    scene = Scene()

    report = scene.log.commit(scene.plan, scene.result)

    assert report.records_by_verdict["dropped_superseded"] == 6
    assert report.groups == len(scene.result.groups)
    assert scene.log.log.clean_offset == 16
    assert not lies_in(scene.log.fs, identity())
    kept = [name for name in scene.log.files() if name.endswith(KEYS)]
    assert len(kept) == len(scene.log.log.segments) - 1


def test_a_committed_result_has_its_certificates() -> None:
    scene = Scene()
    label(scene.log.fs)
    certificates = PassCertificates(ledger_on(scene.log.fs), identity(), pass_id="p")

    report = scene.log.commit(scene.plan, scene.result, certificates=certificates)

    entries = entries_of(scene.log.fs)
    count = len(scene.result.groups)
    assert kinds(entries) == ["begin", *["group"] * count, "pass"]
    assert report.pass_id == "p"
    assert verified(scene.log.fs).is_sound
    assert verified(scene.log.fs).recomputed == len(scene.log.log.segments) - 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda result: replace(result, end_offset=17), r"it ends at offset 17, the plan covers"),
        (lambda result: replace(result, end_offset=-1), r"it ends at offset -1"),
        (lambda result: replace(result, end_offset=0), "beyond the end of the pass"),
        (lambda result: replace(result, groups=result.groups[::-1]), "or out of order"),
        (lambda result: replace(result, groups=result.groups[:1] * 2), "or out of order"),
        (
            lambda result: first(
                result,
                lambda group: replace(
                    group, sources=(group.sources[0], result.groups[-1].sources[-1])
                ),
            ),
            "not neighbours",
        ),
        (
            lambda result: first(
                result,
                lambda group: replace(
                    group, sources=(replace(group.sources[0], size=1), *group.sources[1:])
                ),
            ),
            "not in the plan",
        ),
        (
            lambda result: first(result, lambda group: replace(group, attempt="0" * 32)),
            "an output cannot be taken",
        ),
        (with_output(base_offset=1), "do not cover the same offsets"),
        (with_output(file_version=77), "an output cannot be taken"),
        (with_output(size=-1), "do not cover the same offsets"),
        (with_output(size=1), "CRC|left|bytes"),
        (with_output(record_count=0), "its row says 0 records"),
        (with_output(max_timestamp=5), "as the largest timestamp"),
        (with_output(least_delete_horizon_ms=1), "the least delete horizon"),
        (with_output(tombstone_count=0), "tombstones? must remain"),
        (with_account(digest=1), "the digest of what must remain is 0{31}1"),
        (with_account(batches=0), "more batches than were written"),
        (with_account(rebuilt=b""), "no bit for each"),
        (with_account(marked=0), "found superseded"),
        (with_account(records_read=0), "0 records read"),
        (with_account(records_by_verdict={Verdict.KEPT_LATEST: 1}), "records read, but 1"),
    ],
)
def test_a_result_that_cannot_be_is_refused_and_says_why(change: Change, says: str) -> None:
    scene = Scene()

    scene.refuses(change(scene.result), says)


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda scene, path: scene.log.fs.unlink(path), "an output cannot be taken"),
        (lambda scene, path: scene.log.fs.overwrite(path, 30, b"\xff\xff"), "CRC"),
        (lambda scene, path: scene.log.fs.write_bytes(path, b""), "left|ends early"),
    ],
)
def test_an_output_that_is_gone_or_damaged_is_refused(
    damage: Callable[[Scene, str], None], says: str, number: int
) -> None:
    scene = Scene()
    damage(scene, output_path(scene.remote, scene.result.groups[number]))

    scene.refuses(scene.result, says)


@pytest.mark.parametrize(
    ("befalls", "built"),
    [
        (lambda fs, path: None, 0),
        (lambda fs, path: fs.unlink(path), 1),
        (lambda fs, path: fs.overwrite(path, 60, b"\xff\xff"), 1),
        (lambda fs, path: fs.write_bytes(path, b"KKEY"), 1),
    ],
)
def test_sidecars_that_an_executor_made_are_taken_if_they_are_sound(
    befalls: Callable[[MemoryFileSystem, str], None], built: int
) -> None:
    scene = Scene()
    made = scene.result.keys
    assert [each.row for each in made] == list(scene.plan.view.sealed_rows)
    name = segment_file(made[1].row.base_offset, made[1].row.file_version, KEYS)
    befalls(scene.log.fs, f"{scene.remote.folder}/{made[1].attempt}/{name}")

    report = scene.log.commit(scene.plan, scene.result)

    assert report.sidecars_built == built
    assert not lies_in(scene.log.fs, identity())


@pytest.mark.parametrize("lie", LIES_OF_ENTRIES)
def test_a_sidecar_that_an_executor_has_doubted_is_made_again_from_its_segment(lie: Lie) -> None:
    scene = Scene()
    scene.log.commit(scene.plan, scene.result)
    for number in range(2):
        scene.log.append((b"a", b"later %d" % number), (b"e", b"1"))
        scene.log.roll()
    fs = scene.log.fs
    (path, *_) = [f"{DIRECTORY}/{name}" for name in scene.log.files() if name.endswith(KEYS)]
    tell_somewhere(fs, path, Random(1), lie)
    plan = scene.log.plan()
    result = Executor(fs, plan_for_others(fs, plan), rebuild=True).run()

    report = scene.log.commit(plan, result)

    assert report.sidecars_built >= 1
    assert not lies_in(fs, identity())


def test_a_mark_that_is_wrong_takes_no_last_value() -> None:
    """Account, digest and rows are consistent then, because the executor trusts its marks."""
    scene = Scene()
    lost = [
        Executor(scene.log.fs, scene.remote, mark=partial(mark_wrongly, number=number)).run()
        for number in range(4)
    ]

    for result in lost:
        scene.refuses(result, "keyed records must remain in the checked part of the keys")


def mark_wrongly(marked: list[Marked], number: int) -> None:
    """Mark every record of a segment, as if later records had their keys."""
    marked[number].marks[:] = b"\xff" * len(marked[number].marks)
    marked[number].superseded = 4


def test_a_segment_that_was_forgotten_is_noticed() -> None:
    scene = Scene()

    scene.refuses(
        replace(scene.result, groups=scene.result.groups[1:]),
        "2 superseded records would stay in a segment that is left as it is",
    )


def test_an_end_that_the_transactions_do_not_allow_is_noticed() -> None:
    scene = Scene()

    scene.refuses(
        replace(scene.result, end_offset=Offset(15)),
        "it ends at offset 15, its transactions require",
    )


def test_a_log_that_was_truncated_takes_no_result() -> None:
    scene = Scene()
    scene.log.log.truncate_to(Offset(14))
    scene.before = scene.state()

    with pytest.raises(CleaningAborted):
        scene.log.commit(scene.plan, scene.result)

    assert scene.state() == scene.before


def test_a_source_that_retention_took_meanwhile_is_noticed() -> None:
    scene = Scene()
    scene.log.log.update_config(replace(scene.log.log.config, cleanup_policy=("compact",)))
    scene.log.log.delete_records(scene.result.groups[0].sources[0].end_offset)
    scene.before = scene.state()

    with pytest.raises(SwapRefused):
        scene.log.commit(scene.plan, scene.result)

    assert scene.state() == scene.before


def test_a_result_is_committed_once() -> None:
    scene = Scene()
    scene.log.commit(scene.plan, scene.result)
    after = scene.state()

    with pytest.raises(SwapRefused):
        scene.log.commit(scene.plan, scene.result)

    assert scene.state() == after


def test_an_executor_is_told_that_its_lease_has_ended() -> None:
    scene = Scene()
    scene.log.fs.remove_tree(scene.remote.folder)

    with pytest.raises(LeaseGone, match="the lease has ended"):
        Executor(scene.log.fs, scene.remote).run()

    assert not scene.log.fs.exists(scene.remote.folder)


def test_a_file_with_another_name_is_no_plain_file(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    (tmp_path / "file").write_bytes(b"1")
    assert fs.is_plain_file(str(tmp_path / "file"))

    (tmp_path / "soft").symlink_to(tmp_path / "file")
    assert not fs.is_plain_file(str(tmp_path / "soft"))
    (tmp_path / "hard").hardlink_to(tmp_path / "file")
    assert not fs.is_plain_file(str(tmp_path / "hard"))
    assert not fs.is_plain_file(str(tmp_path))


def held_scene() -> tuple[RemotelyCleaned, CleaningPlan, RemotePlan]:
    """A log whose tombstone has outlived its horizon and is held, with its plan."""
    log = RemotelyCleaned(replace(CONFIG, delete_retention_ms=0))
    log.append((b"a", b"1"))
    log.append((b"a", None))
    log.append((b"b", b"1"))
    log.clean()
    log.now_ms += 1
    log.append_segment((b"b", b"2"))
    log.hold = Hold(offset=Offset(1), by="group mirror")
    plan = log.plan()
    return log, plan, plan_for_others(log.fs, plan)


def test_an_executor_keeps_what_is_held() -> None:
    log, plan, remote = held_scene()

    report = log.commit(plan, Executor(log.fs, remote).run())

    assert [offset for offset, _, _ in log.pairs()] == [1, 3]
    assert report.records_by_verdict["kept_held"] == 1
    assert (report.hold_offset, report.held_by) == (1, "group mirror")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(
            lambda result: result, "at offset 1 was dropped, but they are held", id="said"
        ),
        pytest.param(
            with_account(expired_offset_max=-1), "1 keyed record must remain", id="concealed"
        ),
    ],
)
def test_an_executor_that_drops_what_is_held_is_refused(change: Change, says: str) -> None:
    log, plan, remote = held_scene()
    result = Executor(log.fs, replace(remote, hold_offset=Offset(9))).run()

    with pytest.raises(ResultRefused, match=says):
        log.commit(plan, change(result))
    assert [offset for offset, _, _ in log.pairs()] == [1, 2, 3]
