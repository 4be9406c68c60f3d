"""`kompakt pipeline clean`: clean topics of a running broker with Spark as the executor."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from pipeline.job import SPARK, run_job
from pipeline.session_options import Conf, Master, SessionOptions
from server.command_end import EXIT_USAGE, CommandFailed
from server.command_options import parse_pair
from server.compact_commands import DEFAULT_URL, AsJson, Url


def clean(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC[-N]...",
            help="Topics, or partitions of them; a topic of that whole name comes first.",
        ),
    ],
    token_file: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="The broker's remote-cleaning.token, in its (first) log directory.",
        ),
    ],
    log_dir: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BROKERS=HERE",
            help="Where a log directory of the broker's is, for Spark's driver and executors, if that"
            " is at another path. Repeatable.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Clean TOPIC[-N] now with Spark; the broker plans and commits.

    The broker needs log.cleaner.remote.enable=true, and Spark's driver and
    executors its log directories, on storage that they share with it.

    As `kompakt compact now` it rolls the active segment, and the dirty ratio
    does not matter. Ctrl-C gives everything up: nothing changes before the commit.
    """

    def work() -> int:
        from pipeline.clean_job import clean as clean_with_spark
        from pipeline.spark import job_session

        options = SessionOptions.parse(master, None, None, conf)
        return asyncio.run(
            clean_with_spark(
                url,
                targets,
                lambda: job_session("kompakt pipeline clean", options, pins=()),
                token=read_token(token_file),
                log_dirs=dict(parse_pair("--log-dir", pair) for pair in log_dir or ()),
                as_json=as_json,
            )
        )

    run_job(work, needs=(*SPARK, "pandas"))


def read_token(path: Path) -> str:
    """What a broker knows its cleaners by. Raises CommandFailed."""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(
            EXIT_USAGE, f"the token cannot be read (--token-file): {error}"
        ) from error
