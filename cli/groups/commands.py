"""`kompakt groups ...`: shows the lag of consumer groups, resets and deletes their offsets."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import EXIT_USAGE, CommandFailed, confirm, run
from cli.base.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from cli.compact.options import DEFAULT_URL, Url
from cli.groups.complete import complete_group

app = typer.Typer(
    name="groups",
    help="Show consumer groups and their lag, reset their offsets, delete them.",
    no_args_is_help=True,
)

Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="A group name.", autocompletion=complete_group)
]
Groups = Annotated[
    list[str],
    typer.Argument(metavar="GROUP...", help="Group names.", autocompletion=complete_group),
]
OfTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:0,2]",
        help="A topic, or some partitions of it. Repeatable.",
    ),
]


@app.command(name="list")
@with_access
def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List groups with their states."""
    from cli.groups.show import show_list

    run(lambda: show_list(bootstrap, as_json=as_json))


@app.command()
@with_access
def describe(
    groups: Groups,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the committed offsets, the lag and the members of groups.

    The lag counts offsets. The record lag counts the records that are really there, which in a compacted
    topic may be far fewer; this asks --url.
    """
    from cli.groups.show import show_groups

    run(lambda: show_groups(bootstrap, url, groups, as_json=as_json))


@app.command(name="reset-offsets")
@with_access
def reset_offsets(
    group: Group,
    topic: OfTopics = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Reset to the start of each partition.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="Reset to the end of each partition.")
    ] = False,
    to_current: Annotated[
        bool,
        typer.Option(
            "--to-current", help="Keep the current offsets, but move them into the log's range."
        ),
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="Reset to this offset.")
    ] = None,
    to_moment: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="Reset to the first record at or after this time: a date, ms, or 90m ago.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="Move forward by N offsets, or back if N is negative."),
    ] = None,
    execute: Annotated[
        bool,
        typer.Option("--execute", help="Set the offsets. Without this option nothing is changed."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the new offsets of a group; with --execute, set them.

    Without --topic this resets all committed offsets. The group must have no members.
    """
    from cli.base.moments import parse_moment
    from cli.groups.change import reset_offsets as reset
    from cli.groups.reset_offsets import Aim, Goal

    async def work() -> int:
        goals = [
            Goal(aim=aim)
            for aim, is_asked in (
                (Aim.EARLIEST, to_earliest),
                (Aim.LATEST, to_latest),
                (Aim.CURRENT, to_current),
            )
            if is_asked
        ]
        if to_moment is not None:
            now_ms = time.time_ns() // 1_000_000
            moment = parse_moment("--to-moment", to_moment, now_ms=now_ms)
            goals.append(Goal(aim=Aim.MOMENT, number=moment))
        for aim, number in ((Aim.OFFSET, to_offset), (Aim.SHIFT, shift_by)):
            if number is not None:
                goals.append(Goal(aim=aim, number=number))
        if len(goals) != 1:
            raise CommandFailed(
                EXIT_USAGE,
                "choose one of --to-earliest, --to-latest, --to-current, --to-offset, --to-moment"
                " and --shift-by",
            )
        return await reset(
            bootstrap, group, topic or (), goals[0], is_executed=execute, as_json=as_json
        )

    run(work)


@app.command()
@with_access
def delete(
    groups: Groups,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete groups with their committed offsets. They must have no members."""
    from cli.groups.change import delete_groups

    async def work() -> int:
        if not yes:
            confirm(f"Delete {', '.join(groups)} with all offsets?")
        return await delete_groups(bootstrap, groups, as_json=as_json)

    run(work)


@app.command(name="delete-offsets")
@with_access
def delete_offsets(
    group: Group,
    topic: OfTopics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete a group's committed offsets of topics that no member is subscribed to."""
    from cli.groups.change import delete_offsets as delete_offsets_of

    async def work() -> int:
        if not topic:
            raise CommandFailed(EXIT_USAGE, "choose the topics with --topic")
        return await delete_offsets_of(bootstrap, group, topic, as_json=as_json)

    run(work)
