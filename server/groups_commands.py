"""`kompakt groups ...`: how far groups are, and where they go on."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from server.command_end import EXIT_USAGE, CommandFailed, confirm, run
from server.command_options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, complete_group

app = typer.Typer(
    name="groups",
    help="See how far groups of consumers are, and set where they go on.",
    no_args_is_help=True,
)

Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="A group.", autocompletion=complete_group)
]
Groups = Annotated[
    list[str], typer.Argument(metavar="GROUP...", help="Groups.", autocompletion=complete_group)
]
OfTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC[:0,2]", help="A topic, or partitions of it. Repeatable."
    ),
]


@app.command(name="list")
def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List groups with their states."""
    from server.groups_shown import show_list

    run(lambda: show_list(bootstrap, as_json=as_json))


@app.command()
def describe(
    groups: Groups, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False
) -> None:
    """Show what groups have committed, how far that is behind the end, and who reads what.

    The lag counts offsets: of a compacted topic there may be fewer records to read.
    """
    from server.groups_shown import show_groups

    run(lambda: show_groups(bootstrap, groups, as_json=as_json))


@app.command(name="reset-offsets")
def reset_offsets(
    group: Group,
    topic: OfTopics = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the start of each partition.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To where it is, within what the log holds.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="To this offset.")
    ] = None,
    to_moment: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT", help="To the first record from then on: a date, ms, or 90m ago."
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="So many offsets on; back with a minus.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without it nothing is changed.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show where a group's offsets would be set to; with --execute, set them.

    Without --topic: for all that it has committed. The group must have no members meanwhile.
    """
    from server.groups_changed import reset_offsets as reset
    from server.moments import parse_moment
    from server.reset_offsets import Aim, Goal

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
                "say where to, once: --to-earliest, --to-latest, --to-current, --to-offset,"
                " --to-moment or --shift-by",
            )
        return await reset(
            bootstrap, group, topic or (), goals[0], is_executed=execute, as_json=as_json
        )

    run(work)


@app.command()
def delete(
    groups: Groups,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Forget groups with all that they have committed; they must have no members."""
    from server.groups_changed import delete_groups

    async def work() -> int:
        if not yes:
            confirm(f"Delete {', '.join(groups)} with all offsets?")
        return await delete_groups(bootstrap, groups, as_json=as_json)

    run(work)


@app.command(name="delete-offsets")
def delete_offsets(
    group: Group,
    topic: OfTopics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Forget what a group has committed for topics that none of its members reads."""
    from server.groups_changed import delete_offsets as forget

    async def work() -> int:
        if not topic:
            raise CommandFailed(EXIT_USAGE, "say of which topic: --topic")
        return await forget(bootstrap, group, topic, as_json=as_json)

    run(work)
