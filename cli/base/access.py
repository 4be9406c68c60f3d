"""How a command reaches a secured broker: the options that every command with a broker has.

    --command-config FILE    client properties with Kafka's names, as for Kafka's own tools
    --user NAME              log in by SCRAM-SHA-256; the password is asked for, or KOMPAKT_PASSWORD
    --tls-ca FILE            connect by TLS, and trust the certificates in this PEM file

`with_access` gives them to a command; `current` returns what the user has chosen for the command that
runs now. An option overrides what the file says.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec

import typer

from cli.base.command_end import EXIT_USAGE, CommandFailed
from server.client.access import TOKENS, Access, Login, access_of, tls_context
from server.client.errors import Misconfigured

PASSWORD_VARIABLE = "KOMPAKT_PASSWORD"  # noqa: S105 - the name of a variable
CONFIG_VARIABLE = "KOMPAKT_COMMAND_CONFIG"
SHORT_MECHANISM = "SCRAM-SHA-256"
"""The mechanism of --user, unless the file names another one."""

P = ParamSpec("P")

_OPTIONS: Mapping[str, object] = {
    "command_config": Annotated[
        str | None,
        typer.Option(
            envvar=CONFIG_VARIABLE,
            metavar="FILE",
            help="Client properties with Kafka's names: security.protocol, sasl.jaas.config, ssl...",
        ),
    ],
    # Not `user`, because the arguments of a command may have that name.
    "login_user": Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="NAME",
            help=f"Log in as this user by {SHORT_MECHANISM}. The password is asked for, or taken from"
            f" {PASSWORD_VARIABLE}.",
        ),
    ],
    "tls_ca": Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Connect by TLS, and trust the certificates in this PEM file."
        ),
    ],
}
"""The options by the names of their parameters."""

_chosen: ContextVar[Access | Mapping[str, str] | None] = ContextVar("access", default=None)


def with_access(command: Callable[P, None]) -> Callable[P, None]:
    """Give a command the options of its access to the broker; `current` then returns it."""

    @wraps(command)
    def run(*given: P.args, **named: P.kwargs) -> None:
        values = {name: named.pop(name, None) for name in _OPTIONS}
        token = _chosen.set(
            {name: str(value) for name, value in values.items() if value is not None}
        )
        try:
            command(*given, **named)
        finally:
            _chosen.reset(token)

    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]
    run.__annotations__ = {**command.__annotations__, **_OPTIONS}
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *added]
    )
    return run


def current() -> Access:
    """Returns the access that the user has chosen for the running command.

    Raises:
        CommandFailed: a file cannot be read, or the choice cannot work.
    """
    chosen = _chosen.get()
    if isinstance(chosen, Access):
        return chosen
    access = _resolve(chosen or {})
    # Kept, so that the password is asked for once.
    _chosen.set(access)
    return access


def _resolve(chosen: Mapping[str, str]) -> Access:
    """Returns the access for these options and their values."""
    if not chosen:
        return Access()
    try:
        return _with_options(_of_file(chosen.get("command_config")), chosen)
    except Misconfigured as error:
        raise CommandFailed(EXIT_USAGE, str(error)) from error


def _of_file(file: str | None) -> Access:
    return Access() if file is None else access_of(properties_of_file(Path(file)))


def properties_of_file(path: Path) -> Mapping[str, str]:
    """Returns the properties of --command-config. Raises CommandFailed if the file cannot be read."""
    # Every command imports this module for its options; few need the readers of files.
    from server.client.client_properties import read_properties

    try:
        return read_properties(path)
    except Misconfigured as error:
        raise CommandFailed(EXIT_USAGE, f"--command-config {error}") from error


def _with_options(access: Access, chosen: Mapping[str, str]) -> Access:
    if "tls_ca" in chosen:
        from server.client.client_properties import TlsFiles

        access = replace(access, tls=tls_context(TlsFiles(ca_file=chosen["tls_ca"])))
    if "login_user" in chosen:
        mechanism = SHORT_MECHANISM if access.login is None else access.login.mechanism
        user = chosen["login_user"]
        if mechanism == TOKENS:
            raise CommandFailed(
                EXIT_USAGE,
                f"--user {user}: with OAUTHBEARER the token names the user",
            )
        login = Login(mechanism=mechanism, user=user, password=_password(user))
        access = replace(access, login=login)
    return access


def _password(user: str) -> str:
    given = os.environ.get(PASSWORD_VARIABLE)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise CommandFailed(
            EXIT_USAGE,
            f"standard input is not a terminal: set {PASSWORD_VARIABLE} for --user {user}",
        )
    asked: str = typer.prompt(f"Password of {user}", hide_input=True, err=True)
    return asked
