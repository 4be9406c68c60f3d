from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from pipeline.spark import job
from pipeline.spark.jars import JarsUnavailable

CHECKOUT = Path(__file__).parents[3]


def failing(error: Exception) -> int:
    raise error


def ended(capsys: pytest.CaptureFixture[str], error: Exception) -> tuple[int, str]:
    with pytest.raises(typer.Exit) as end:
        job.run_job(lambda: failing(error), needs=())
    return end.value.exit_code, capsys.readouterr().err


def test_missing_jars_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, JarsUnavailable("no jars.")) == (1, "kompakt: no jars.\n")


def test_what_spark_says_is_told_without_its_stack(capsys: pytest.CaptureFixture[str]) -> None:
    errors = pytest.importorskip("pyspark.errors")
    stack = (
        "An error occurred\n\tat x\nCaused by: java.util.concurrent.ExecutionException: y\n"
        "Caused by: org.apache.kafka.common.errors.TimeoutException: no answer\n\tat z"
    )

    assert ended(capsys, errors.PySparkException(stack)) == (
        1,
        "kompakt: TimeoutException: no answer\n",
    )


def test_what_a_worker_raised_is_told_without_its_frames(
    capsys: pytest.CaptureFixture[str],
) -> None:
    errors = pytest.importorskip("pyspark.errors")
    stack = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in read\n    raise\n'
        "storage.files.errors.CorruptLog: 0.log is corrupt at byte 7: its CRC differs\n\n\tat java.lang"
    )

    assert ended(capsys, errors.PySparkException(stack)) == (
        1,
        "kompakt: 0.log is corrupt at byte 7: its CRC differs\n",
    )


def test_an_error_for_lack_of_memory_says_where_to_get_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    errors = pytest.importorskip("pyspark.errors")
    stack = "Job aborted\nCaused by: java.lang.OutOfMemoryError: Java heap space\n\tat x"

    code, said = ended(capsys, errors.PySparkException(stack))
    assert code == 1
    assert said.startswith("kompakt: Spark's process has ended: its memory was not enough. Give it")


ENDING = """
import sys

import typer

from pipeline.spark.job import run_job
from pipeline.spark.session import LOCAL, job_session

def work():
    with job_session("test", LOCAL, pins=()) as session:
        session._jvm.java.lang.System.exit({code})

try:
    run_job(work)
except typer.Exit as done:
    sys.exit(done.exit_code)
"""


@pytest.mark.spark
@pytest.mark.parametrize(("code", "why"), [(52, "its memory was not enough"), (3, "exit code 3")])
def test_where_the_jvm_ends_by_itself_one_sentence_says_why(code: int, why: str) -> None:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Java is missing")
    done = subprocess.run(
        [sys.executable, "-c", ENDING.format(code=code)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert f"kompakt: Spark's process has ended: {why}. Give it more memory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_of_ours_keeps_its_stack() -> None:
    with pytest.raises(ZeroDivisionError):
        job.run_job(lambda: 1 // 0, needs=())


def test_without_spark_one_sentence_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit):
        job.run_job(lambda: 0, needs=("a_module_that_nobody_has",))

    said = capsys.readouterr().err
    assert said.startswith(
        "kompakt: Spark is missing (a_module_that_nobody_has): install it with `"
    )
    assert "-m pip install" in said
    assert "pyspark" in said
