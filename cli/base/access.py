"""How a command reaches a secured broker: the options that every command with a broker has.

    --command-config FILE    client properties with Kafka's names, as for Kafka's own tools
    --user NAME              log in by SCRAM-SHA-256; the password is asked for, or KOMPAKT_PASSWORD
    --tls-ca FILE            connect by TLS, and trust the certificates in this PEM file

`with_access` gives them to a command; `current` returns what the user has chosen for the command that
runs now. An option overrides what the file says.

Source: Apache Kafka, CommonClientConfigs.java, SslConfigs.java, SaslConfigs.java (names and defaults).
"""

from __future__ import annotations

import inspect
import os
import ssl
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from cli.base.command_end import EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from cli.base.client_properties import TlsFiles

PASSWORD_VARIABLE = "KOMPAKT_PASSWORD"  # noqa: S105 - the name of a variable
CONFIG_VARIABLE = "KOMPAKT_COMMAND_CONFIG"
SHORT_MECHANISM = "SCRAM-SHA-256"
"""The mechanism of --user, unless the file names another one."""
TOKENS = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", TOKENS)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A SASL mechanism with the user's name and password, or with the file of a token."""

    mechanism: str
    user: str = ""
    password: str = ""
    token_file: Path | None = None
    """For OAUTHBEARER, whose token names the user."""

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.token_file or self.user})"

    def __str__(self) -> str:
        """Returns a text for errors."""
        who = (
            f"as {self.user}" if self.token_file is None else f"with the token in {self.token_file}"
        )
        return f"login {who} by {self.mechanism}"

    def kafka_python_settings(self) -> dict[str, Any]:
        """Returns the settings of kafka-python's clients."""
        settings: dict[str, Any] = {"sasl_mechanism": self.mechanism}
        if self.token_file is None:
            return settings | {
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        # kafka-python takes long to import.
        from cli.base.token_provider import TokenProvider

        return settings | {"sasl_oauth_token_provider": TokenProvider(self.token_file)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to connect: over TLS or not, and as which user."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None

    @property
    def security_protocol(self) -> str:
        """Kafka's name for this kind of connection."""
        if self.login is None:
            return "PLAINTEXT" if self.tls is None else "SSL"
        return "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL"

    def kafka_python_settings(self) -> dict[str, Any]:
        """Returns the settings of kafka-python's clients."""
        settings: dict[str, Any] = {"security_protocol": self.security_protocol}
        if self.tls is not None:
            settings["ssl_context"] = self.tls
        if self.login is not None:
            settings |= self.login.kafka_python_settings()
        return settings


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
    # Every command imports this module for its options; few need the readers of files.
    from cli.base.client_properties import TlsFiles, read_properties

    file = chosen.get("command_config")
    access = Access() if file is None else _access_of(read_properties(Path(file)))
    if "tls_ca" in chosen:
        access = replace(access, tls=_context(TlsFiles(ca_file=chosen["tls_ca"])))
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


def _access_of(properties: Mapping[str, str]) -> Access:
    """Returns the access that a file of client properties describes."""
    from cli.base.client_properties import tls_files

    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise CommandFailed(
            EXIT_USAGE, f"security.protocol={protocol} is not one of {', '.join(PROTOCOLS)}"
        )
    tls = _context(tls_files(properties)) if protocol.endswith("SSL") else None
    login = _login(properties) if protocol.startswith("SASL") else None
    return Access(tls=tls, login=login)


def _login(properties: Mapping[str, str]) -> Login:
    from cli.base.client_properties import login_of

    mechanism = properties.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise CommandFailed(
            EXIT_USAGE,
            f"sasl.mechanism={mechanism or '(not set)'}: kompakt logs in by {', '.join(MECHANISMS)}",
        )
    if mechanism == TOKENS:
        return _token_login(properties)
    user, password = login_of(properties.get("sasl.jaas.config", ""))
    return Login(mechanism=mechanism, user=user, password=password)


def _token_login(properties: Mapping[str, str]) -> Login:
    from cli.base.token_file import read_token, token_path

    path = token_path(properties)
    read_token(path)
    return Login(mechanism=TOKENS, token_file=path)


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


def _context(files: TlsFiles) -> ssl.SSLContext:
    """Returns the context of a client. Raises CommandFailed."""
    from server.security.own_key import load_own_key

    try:
        context = ssl.create_default_context(cafile=files.ca_file, cadata=files.ca_text)
        if files.certificate_file is not None:
            context.load_cert_chain(files.certificate_file, files.key_file, files.key_password)
        if files.own_pem is not None:
            load_own_key(context, files.own_pem)
    except OSError as error:
        named = [files.ca_file, files.certificate_file, files.key_file]
        where = ", ".join(name for name in named if name is not None)
        why = (
            "it is no PEM file that can be used"
            if isinstance(error, ssl.SSLError)
            else error.strerror
        )
        raise CommandFailed(
            EXIT_USAGE, f"TLS: {where or 'ssl.truststore.certificates'}: {why}"
        ) from error
    context.check_hostname = files.checks_host
    return context
