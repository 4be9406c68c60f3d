"""`kompakt pipeline clean`: clean topics of a running broker with Spark as the executor."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import EXIT_USAGE, CommandFailed
from cli.base.options import parse_pairs
from cli.compact.options import DEFAULT_URL, AsJson, Url
from pipeline.spark.job import SPARK, run_job
from pipeline.spark.session_options import Conf, Master, SessionOptions


@with_access
def clean(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC[-N]...",
            help="Topics, or partitions as TOPIC-N; a topic with that whole name takes precedence.",
        ),
    ],
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The broker's remote-cleaning.token, in its (first) log directory; not needed where"
            " the broker's HTTP endpoint has logins.",
        ),
    ] = None,
    log_dir: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BROKERS=HERE",
            help="The path of a broker's log directory on Spark's driver and executors, if it differs."
            " Repeatable.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Clean TOPIC[-N] now with Spark; the broker plans and commits.

    The broker needs log.cleaner.remote.enable=true, and Spark's driver and
    executors need its log directories, on storage that they share with it.

    Like `kompakt compact now` it rolls the active segment and ignores the
    dirty ratio. Ctrl-C cancels the job: nothing changes before the commit.
    """

    def work() -> int:
        from pipeline.cleaning.job import clean as clean_with_spark
        from pipeline.spark.session import job_session

        options = SessionOptions.parse(master, None, None, conf)
        return asyncio.run(
            clean_with_spark(
                url,
                targets,
                lambda: job_session("kompakt pipeline clean", options, pins=()),
                token=None if token_file is None else read_token(token_file),
                log_dirs=parse_pairs("--log-dir", log_dir),
                as_json=as_json,
            )
        )

    run_job(work, needs=(*SPARK, "pandas"))


def read_token(path: Path) -> str:
    """Read the broker's token for remote cleaners. Raises CommandFailed."""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(
            EXIT_USAGE, f"the token cannot be read (--token-file): {error}"
        ) from error
