"""Carries out the commands of `kompakt users`, and prints the results."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import typer

from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.output import print_json, print_table
from cli.users.target import Open
from protocol.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from server.security.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    salted_password,
)

SALT_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassword:
    """A password to set."""

    user: str
    password: str = field(repr=False)
    mechanisms: tuple[ScramMechanism, ...]
    """Empty: those that the user has, or all for a new user."""
    iterations: int

    @classmethod
    def ask(
        cls, user: str, mechanisms: Sequence[str], iterations: int, *, from_stdin: bool
    ) -> Self:
        """Check the arguments and read the password. Raises CommandFailed."""
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            bounds = f"from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            raise CommandFailed(EXIT_USAGE, f"--iterations {iterations}: choose a number {bounds}")
        chosen = tuple(_mechanism(each) for each in mechanisms)
        password = _read_password(from_stdin=from_stdin)
        return cls(user=user, password=password, mechanisms=chosen, iterations=iterations)

    def credential(self, mechanism: ScramMechanism) -> ScramCredentialUpsertion:
        """Returns the credential for a mechanism, with a new salt."""
        salt = secrets.token_bytes(SALT_BYTES)
        return ScramCredentialUpsertion(
            name=self.user,
            mechanism=mechanism,
            iterations=self.iterations,
            salt=salt,
            salted_password=salted_password(mechanism, self.password, salt, self.iterations),
        )


async def set_password(
    target: Open, ask: Callable[[], NewPassword], *, is_new: bool, as_json: bool
) -> int:
    """Add a user, or change its password, which `ask` reads. Returns the exit code."""
    new = ask()
    async with target() as broker:
        existing = (await broker.users()).get(new.user, {})
        if is_new and existing:
            text = f"user {new.user} exists; kompakt users passwd changes its password"
            raise CommandFailed(EXIT_FAILED, text)
        if not is_new and not existing:
            raise CommandFailed(EXIT_FAILED, f"there is no user {new.user}")
        mechanisms = new.mechanisms or tuple(existing) or tuple(ScramMechanism)
        for mechanism in mechanisms:
            await broker.change(new.credential(mechanism))
    names = [each.sasl_name for each in mechanisms]
    if as_json:
        print_json({"user": new.user, "mechanisms": names})
    else:
        done = "added" if is_new else "has a new password"
        typer.echo(f"user {new.user} {done} ({', '.join(names)})")
    return 0


async def remove_user(target: Open, user: str, *, as_json: bool) -> int:
    """Remove a user. Returns the exit code."""
    async with target() as broker:
        existing = (await broker.users()).get(user, {})
        if not existing:
            raise CommandFailed(EXIT_FAILED, f"there is no user {user}")
        for mechanism in existing:
            await broker.change(ScramCredentialDeletion(name=user, mechanism=mechanism))
    if as_json:
        print_json({"user": user, "removed": True})
    else:
        typer.echo(f"user {user} removed")
    return 0


async def list_users(target: Open, *, as_json: bool) -> int:
    """Print all users. Returns the exit code."""
    async with target() as broker:
        users = await broker.users()
    if as_json:
        found = [
            {
                "user": user,
                "mechanisms": [
                    {"name": mechanism.sasl_name, "iterations": iterations}
                    for mechanism, iterations in mechanisms.items()
                ],
            }
            for user, mechanisms in users.items()
        ]
        print_json({"users": found})
        return 0
    rows = [
        (user, mechanism.sasl_name, str(iterations))
        for user, mechanisms in users.items()
        for mechanism, iterations in mechanisms.items()
    ]
    print_table(("user", "mechanism", "iterations"), rows, texts={"user", "mechanism"})
    return 0


def _mechanism(name: str) -> ScramMechanism:
    try:
        return ScramMechanism.of(name.upper())
    except ValueError:
        names = " or ".join(each.sasl_name for each in ScramMechanism)
        raise CommandFailed(EXIT_USAGE, f"--mechanism {name}: use {names}") from None


def _read_password(*, from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        text = "standard input is not a terminal: add --password-stdin to read the password from it"
        raise CommandFailed(EXIT_USAGE, text)
    if not password:
        raise CommandFailed(EXIT_USAGE, "the password is empty")
    return password
