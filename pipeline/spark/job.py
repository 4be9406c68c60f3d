"""Runs a job of `kompakt pipeline` from the command line: checks what is installed, reports errors."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Collection
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from typing import NoReturn

from cli.base.command_end import EXIT_FAILED, CommandFailed, end
from pipeline.spark.jars import JarsUnavailable

SPARK = ("pyspark", "pyarrow")
"""The modules of the extra `spark`."""

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
        if not is_of_spark(error):
            raise
        raise CommandFailed(EXIT_FAILED, cause(error)) from error


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
