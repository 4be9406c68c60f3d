"""Runs a job of `kompakt pipeline` from the command line: checks what is installed, reports errors."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from typing import NoReturn

from cli.base.command_end import EXIT_FAILED, CommandFailed, end
from pipeline.spark.jars import JarsUnavailable

SPARK = ("pyspark", "pyarrow")
"""The modules of the extra `spark`."""

OUT_OF_MEMORY = 52
"""The exit code of Spark's JVM after an OutOfMemoryError (SparkExitCode.OOM)."""
OUT_OF_MEMORY_ERROR = "java.lang.OutOfMemoryError"
ENDING_S_MAX = 10
"""How long a JVM that no longer answers may take to end."""
TRACEBACK = "Traceback (most recent call last):\n"
RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: \w+)?$")
"""One of our own messages (`raise_error`), as Spark passes it on."""


def run_job(work: Callable[[], int], *, needs: Collection[str] = SPARK) -> NoReturn:
    """Run a job and exit with its code; report an error in one sentence.

    `needs` are modules that the extra `spark` installs; `work` may import them.
    """
    end(lambda: _do(work, needs))


def _do(work: Callable[[], int], needs: Collection[str]) -> int:
    require_modules(needs)
    try:
        return work()
    except JarsUnavailable as error:
        raise CommandFailed(EXIT_FAILED, str(error)) from error
    except Exception as error:
        said = sentence_of(error)
        if said is None:
            raise
        raise CommandFailed(EXIT_FAILED, said) from error


def require_modules(modules: Collection[str]) -> None:
    """Raise CommandFailed, which says how to install the extra `spark`, if a module is missing."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        wanted = shlex.join([sys.executable, "-m", "pip", "install", *requirements()])
        raise CommandFailed(
            EXIT_FAILED, f"Spark is missing ({', '.join(missing)}): install it with `{wanted}`."
        )


def requirements() -> list[str]:
    """Returns the requirements of the extra `spark`."""
    try:
        lines = requires("kompakt") or []
    except PackageNotFoundError:
        return list(SPARK)
    of_extra = re.compile(r"""\s*;\s*extra == ['"]spark['"]""")
    return [of_extra.sub("", line) for line in lines if of_extra.search(line)]


def is_of_spark(error: Exception) -> bool:
    """Returns whether Spark's Python or Java side raised it. Does not import Spark."""
    return any(
        kind.__module__.partition(".")[0] in ("pyspark", "py4j") for kind in type(error).__mro__
    )


def sentence_of(error: Exception) -> str | None:
    """Returns why Spark failed; None if the error is not of Spark."""
    is_of_java = is_of_spark(error)
    try:
        said = cause(error) if is_of_java else None
    except OSError:  # A JVM that ends no longer says what an exception of its says.
        said = None
    if said is not None and OUT_OF_MEMORY_ERROR in said:
        return why_spark_ended(OUT_OF_MEMORY)
    code = exit_code_of_spark(ENDING_S_MAX if is_of_java and said is None else 0)
    return said if code is None else why_spark_ended(code)


def exit_code_of_spark(wait_s: float = 0) -> int | None:
    """Returns the exit code of the JVM of this process' session; None while it runs, or without one.

    Args:
        wait_s: how long to wait for its end.
    """
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return int(process.wait(wait_s))
    except subprocess.TimeoutExpired:
        return None


def why_spark_ended(code: int) -> str:
    why = "its memory was not enough" if code == OUT_OF_MEMORY else f"exit code {code}"
    return (
        f"Spark's process has ended: {why}. Give it more memory (--conf spark.driver.memory=8g), or let"
        " a stream read less at once (--offsets-per-batch)."
    )


def cause(error: Exception) -> str:
    """Returns the last cause: the message of Kafka's client, for example, without Spark's stack."""
    worker = str(error).rpartition(TRACEBACK)[2]
    if worker != str(error):
        return raised_in(worker)
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.partition("Caused by: ")[2] for line in lines if line.startswith("Caused by: ")]
    said = causes[-1] if causes else next((line for line in lines if line), type(error).__name__)
    raised = RAISED.search(said)
    return raised[1] if raised else said.removeprefix("org.apache.kafka.common.errors.")


def raised_in(traceback: str) -> str:
    """Returns the message of a Python worker's exception from its traceback, without the frames."""
    told = traceback.partition("\n\n")[0].splitlines()
    ends = [line for line in told if line and not line[0].isspace()]
    kind, _, sentence = (ends[0] if ends else "").partition(": ")
    return sentence or kind or "a worker failed"
