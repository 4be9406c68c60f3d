"""`kompakt users ...`: users that log in by SCRAM, of a running broker or in a stopped one's data."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import run
from cli.base.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

app = typer.Typer(
    name="users",
    help="Add, list and remove users that log in by SCRAM, and change their passwords.",
    no_args_is_help=True,
)

User = Annotated[str, typer.Argument(metavar="USER", help="A user name.")]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIRECTORY",
        help="Work on the data directory of a stopped broker, for the first user: its"
        " metadata.log.dir, by default the first of log.dirs.",
    ),
]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        help="SCRAM-SHA-256 or SCRAM-SHA-512. Repeatable. Default: both.",
    ),
]
Iterations = Annotated[
    int, typer.Option(metavar="COUNT", help="How often the password is hashed: 4096 to 16384.")
]
PasswordStdin = Annotated[
    bool,
    typer.Option(
        "--password-stdin",
        help="Read the password from the first line of standard input instead of asking for it.",
    ),
]


@app.command()
@with_access
def add(
    name: User,
    mechanism: Mechanisms = None,
    iterations: Iterations = 8192,
    password_stdin: PasswordStdin = False,
    data: Data = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Add a user. Asks for its password, twice."""
    from cli.users.change import NewPassword, set_password
    from cli.users.target import target_of

    ask = partial(NewPassword.ask, name, mechanism or (), iterations, from_stdin=password_stdin)
    run(lambda: set_password(target_of(bootstrap, data), ask, is_new=True, as_json=as_json))


@app.command()
@with_access
def passwd(
    name: User,
    mechanism: Mechanisms = None,
    iterations: Iterations = 8192,
    password_stdin: PasswordStdin = False,
    data: Data = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change the password of a user. Connections that are open stay open."""
    from cli.users.change import NewPassword, set_password
    from cli.users.target import target_of

    ask = partial(NewPassword.ask, name, mechanism or (), iterations, from_stdin=password_stdin)
    run(lambda: set_password(target_of(bootstrap, data), ask, is_new=False, as_json=as_json))


@app.command()
@with_access
def remove(
    name: User,
    data: Data = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Remove a user with all its passwords. Connections that are open stay open."""
    from cli.users.change import remove_user
    from cli.users.target import target_of

    run(lambda: remove_user(target_of(bootstrap, data), name, as_json=as_json))


@app.command(name="list")
@with_access
def list_users(
    data: Data = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False
) -> None:
    """List users with their mechanisms."""
    from cli.users.change import list_users as show
    from cli.users.target import target_of

    run(lambda: show(target_of(bootstrap, data), as_json=as_json))
