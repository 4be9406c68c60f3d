"""Spark as the executor: what it writes is what a plain loop over the same steps writes, to the byte."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from cleaner.remote.plan import GroupResult, RemotePlan
from pipeline.cleaning.execute import LogPass, execute
from storage.files.local_files import LocalFileSystem
from storage.files.paths import KEYS, LOG, segment_file
from tests.harness.compacted_log import CompactedLog
from tests.harness.random_log import random_log
from tests.harness.remote_cleaning import Executor, plan_for_others
from tests.harness.sidecar_lies import another_hash, tell_somewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def on_disk(log: CompactedLog, folder: Path) -> RemotePlan:
    """Put a log's files into a folder, with the lease's own; the plan of its next pass there."""
    plan = plan_for_others(log.fs, log.plan())
    paths = [f"{plan.log_directory}/{name}" for name in log.files()] + [f"{plan.log_dir}/hash.key"]
    for path in paths:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(log.fs.read_bytes(path))
    moved = plan.moved_to(str(folder / plan.log_dir))
    Path(moved.folder).mkdir(parents=True)
    return moved


def written(plan: RemotePlan, groups: tuple[GroupResult, ...]) -> list[object]:
    """What a result says of each group, and the bytes of its outputs."""
    return [
        (
            group.sources,
            group.account,
            [
                Path(
                    plan.folder,
                    group.attempt,
                    segment_file(row.base_offset, row.file_version, LOG, cleaned=True),
                ).read_bytes()
                for row in group.outputs
            ],
        )
        for group in groups
    ]


def dirty_log(random: Random, *, transactions: bool) -> CompactedLog:
    """A log that was cleaned once, whose tombstones are due, with as much dirty behind it."""
    log = random_log(random, batches=25, keys=12, transactions=transactions)
    log.clean()
    log.now_ms += log.log.config.delete_retention_ms
    random_log(random, batches=25, keys=12, transactions=transactions, into=log)
    return log


def steps_of(session: SparkSession, plans: list[RemotePlan]) -> tuple[list[str], list[LogPass]]:
    steps: list[str] = []
    return steps, execute(session, plans, enter=steps.append)


def test_several_logs_at_once_come_to_what_each_comes_to_alone(
    session: SparkSession, tmp_path: Path
) -> None:
    random = Random(11)
    plans = [
        on_disk(dirty_log(random, transactions=number % 2 == 1), tmp_path / str(number))
        for number in range(3)
    ]

    steps, passes = steps_of(session, plans)

    assert steps == ["index", "last", "recopy"]
    for plan, each in zip(plans, passes, strict=True):
        alone = Executor(LocalFileSystem(), plan).run()
        assert each.error is None
        assert each.result.end_offset == alone.end_offset
        assert written(plan, each.result.groups) == written(plan, alone.groups)
        assert alone.groups, "something was to be done"


def test_a_log_whose_sidecar_disagrees_with_its_segment_is_cleaned_with_new_ones(
    session: SparkSession, tmp_path: Path
) -> None:
    sound, lying = (
        on_disk(dirty_log(Random(13), transactions=False), tmp_path / name)
        for name in ("sound", "lying")
    )
    alone = Executor(LocalFileSystem(), sound).run()
    (path, *_) = sorted(Path(lying.log_directory).glob(f"*{KEYS}"))
    tell_somewhere(LocalFileSystem(), str(path), Random(1), another_hash)

    steps, passes = steps_of(session, [lying, sound])

    assert steps == ["index", "last", "recopy"] * 2
    assert [each.error for each in passes] == [None, None]
    assert passes[0].sidecars_built == len(passes[0].keys) > passes[1].sidecars_built
    for plan, each in zip((lying, sound), passes, strict=True):
        assert written(plan, each.result.groups) == written(sound, alone.groups)


def test_a_damaged_log_fails_alone_and_is_told(session: SparkSession, tmp_path: Path) -> None:
    random = Random(12)
    good, bad = (
        on_disk(dirty_log(random, transactions=False), tmp_path / name) for name in ("good", "bad")
    )
    row = bad.sealed_rows[-1]
    segment = Path(bad.log_directory, segment_file(row.base_offset, row.file_version, LOG))
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)

    _, passes = steps_of(session, [bad, good])

    assert passes[0].error is not None
    assert "CRC" in passes[0].error
    assert passes[1].error is None
    assert passes[1].result.groups


def test_a_directory_that_is_not_there_is_told(session: SparkSession, tmp_path: Path) -> None:
    plan = on_disk(dirty_log(Random(13), transactions=False), tmp_path)

    _, (only,) = steps_of(session, [plan.moved_to(str(tmp_path / "elsewhere"))])

    assert only.error is not None
    assert "elsewhere" in only.error
