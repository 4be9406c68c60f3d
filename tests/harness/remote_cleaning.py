"""Executes a plan like an executor: each task in its own attempt, with only what can be transferred."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.certificate import NO_CERTIFICATES, PassCertificates
from cleaner.passes.mark import Marked
from cleaner.remote.commit import commit
from cleaner.remote.execute import RemotePass, SegmentKeys, is_one_task, result_of
from cleaner.remote.plan import (
    GroupResult,
    RemotePlan,
    RemoteResult,
    group_from_json,
    group_json,
)
from cleaner.remote.travelling_plan import remote_plan
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.report import PassReport
from storage.files.files import FileSystem
from storage.files.paths import HASH_KEY, LOG, join, segment_file
from tests.harness.compacted_log import DIRECTORY, CompactedLog, meter_of, never_stop
from tests.harness.compacted_log import HASH_KEY as KEY
from tests.harness.sidecar_mode import SidecarMode

LOG_DIR = "data"
LEASE = "0123456789abcdef" * 2


class Executor:
    """Runs tasks one after the other; `attempts` says how often each is run."""

    def __init__(
        self,
        fs: FileSystem,
        plan: RemotePlan,
        *,
        settings: CleanerSettings | None = None,
        attempts: int = 1,
        mark: Callable[[list[Marked]], None] = lambda _: None,
        rebuild: bool = False,
    ) -> None:
        """Create an executor. `mark` changes the marks before they are used.

        `rebuild` ignores the key sidecars that are there.
        """
        self._fs = fs
        self._plan = RemotePlan.from_json(plan.to_json())
        self._settings = settings
        self._attempts = attempts
        self._mark = mark
        self._rebuild = rebuild
        assert self._plan == plan

    def run(self) -> RemoteResult:
        with RemotePass(self._plan, fs=self._fs) as driver:
            keys: list[SegmentKeys] = [
                self._task(partial(RemotePass.index, number=number, rebuild=self._rebuild))
                for number in driver.numbers
            ]
            section = driver.section(keys)
            marked = self._task(lambda task: task.mark(keys, task.section(keys)))
            self._mark(marked)
            if is_one_task(keys):
                results = self._task(
                    lambda task: [
                        group_json(each)
                        for each in task.recopy_log(keys, marked, task.section(keys))
                    ]
                )
            else:
                found = [
                    driver.findings(each, its, section)
                    for each, its in zip(keys, marked, strict=True)
                ]
                results = [
                    self._task(partial(_recopied, keys=keys, marked=marked, group=group))
                    for group in driver.groups(found)
                ]
        groups = [group_from_json(each) for each in results if each is not None]
        result = result_of(self._plan, section.end_offset, groups, keys)
        assert RemoteResult.from_json(result.to_json()) == result
        return result

    def _task(self, work: Callable[[RemotePass], Any]) -> Any:
        """Run a task in several complete attempts. Returns the first result."""
        results = []
        for _ in range(self._attempts):
            with RemotePass(self._plan, fs=self._fs, settings=self._settings) as task:
                results.append(pickle.loads(pickle.dumps(work(task))))
        return results[0]


def _recopied(task: RemotePass, keys: Any, marked: Any, group: slice) -> str | None:
    result: GroupResult | None = task.recopy_group(keys[group], marked[group], task.section(keys))
    return None if result is None else group_json(result)


def plan_for_others(fs: FileSystem, plan: CleaningPlan, lease: str = LEASE) -> RemotePlan:
    """Returns the remote plan of a `CompactedLog`'s pass; stores the hash key in its place."""
    path = join(LOG_DIR, HASH_KEY)
    if not fs.exists(path):
        fs.write_bytes(path, KEY)
    remote = remote_plan(
        plan,
        lease=lease,
        log_dir=LOG_DIR,
        directory=DIRECTORY.removeprefix(LOG_DIR + "/"),
        decompressed_bytes_max=CleanerSettings().decompressed_bytes_max,
    )
    fs.make_directory(remote.folder)
    return remote


def output_path(plan: RemotePlan, group: GroupResult, kind: str = LOG) -> str:
    """Returns the path of a file of a group's first output."""
    row = group.outputs[0]
    name = segment_file(row.base_offset, row.file_version, kind, cleaned=True)
    return join(join(plan.folder, group.attempt), name)


class RemotelyCleaned(CompactedLog):
    """A log whose passes are executed remotely and whose results are committed."""

    attempts = 1
    """How often each task runs."""

    def _execute(self, plan: CleaningPlan, stop: Callable[[float], bool]) -> PassReport | None:
        remote = plan_for_others(self.fs, plan)
        result = Executor(self.fs, remote, attempts=self.attempts).run()
        report = self.commit(plan, result, stop=stop)
        self.fs.remove_tree(remote.folder)
        return report

    def commit(
        self,
        plan: CleaningPlan,
        result: RemoteResult,
        *,
        stop: Callable[[float], bool] = never_stop,
        certificates: PassCertificates = NO_CERTIFICATES,
    ) -> PassReport:
        """Commit a result like the broker."""
        return commit(
            self.log,
            plan,
            plan_for_others(self.fs, plan).folder,
            result,
            replace(self.settings, keeps_key_sidecars=self.sidecars is not SidecarMode.OFF),
            meter=meter_of(self.log, plan.view.generation, stop),
            monotonic=lambda: self.now_ms / 1000,
            certificates=certificates,
        )
