"""`kompakt erase ...`: delete keys with a deadline, and get certificates of it, over HTTP.

`kompakt erase TOPIC KEY...` is short for `kompakt erase request TOPIC KEY...`, which also works for a
topic with the name of another command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cli.base.access import with_access
from cli.base.command_end import run
from cli.base.options import AsJson, KeysAreBase64, KeysAreHex, KeysFile
from cli.compact.options import DEFAULT_URL, Url

REQUEST = "request"


class RequestByDefault(TyperGroup):
    """Treats a first argument that is not a command as the topic of a request."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Returns what is left of the arguments."""
        if args and args[0] not in {*self.commands, "--help"}:
            args = [REQUEST, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="erase",
    cls=RequestByDefault,
    help="Erase keys of a compacted topic by a deadline, with certificates."
    " `kompakt erase TOPIC KEY... --by 72h` is short for `kompakt erase request ...`.",
    no_args_is_help=True,
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of an erasure.")]


@app.command(REQUEST)
@with_access
def request(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A compacted topic.")],
    key: Annotated[
        list[str] | None, typer.Argument(metavar="KEY...", help="The keys to erase.")
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="SPAN",
            help="The deadline from now, as in 72h or 30d: by then the tombstones must be gone as well.",
        ),
    ] = "72h",
    keys_file: KeysFile = None,
    is_hex: KeysAreHex = False,
    is_base64: KeysAreBase64 = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait until the records are gone and certified. The tombstones stay for"
            " delete.retention.ms longer.",
        ),
    ] = False,
    certificates: Annotated[
        Path | None,
        typer.Option(
            "--certificates",
            metavar="DIR",
            file_okay=False,
            help="Wait, and write the certificates to this directory, as ID.json.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Erase keys: write tombstones, clean what holds the keys, prove that nothing is left, certify it.

    Searches all partitions. Records of the keys that are produced afterwards are not part of it. Ctrl-C
    ends the waiting, not the erasure.
    """
    if is_hex and is_base64:
        raise typer.BadParameter("use either --hex or --base64")
    from cli.base.keys import form_of, keys_of
    from cli.erase.requests import request_erasure

    run(
        lambda: request_erasure(
            url,
            topic,
            keys_of(key or [], keys_file, form_of(is_hex=is_hex, is_base64=is_base64)),
            by=by,
            waits=wait or certificates is not None,
            certificates=certificates,
            as_json=as_json,
        )
    )


@app.command("list")
@with_access
def list_erasures(
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only those of this topic.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the erasures with their states and deadlines, the oldest first."""
    from cli.erase.show import list_all

    run(lambda: list_all(url, topic, as_json=as_json))


@app.command()
@with_access
def status(erasure: Id, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show what an erasure waits for, partition by partition, and what changes that.

    Exit code 1: its deadline is at risk or has passed.
    """
    from cli.erase.show import show_status

    run(lambda: show_status(url, erasure, as_json=as_json))


@app.command()
@with_access
def forget(
    erasure: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Forget an erasure: its tombstones stay, but nothing more is cleaned for it or certified."""
    from cli.erase.show import forget_erasure

    run(lambda: forget_erasure(url, erasure, is_confirmed=yes))


@app.command()
@with_access
def certificate(erasure: Id, url: Url = DEFAULT_URL) -> None:
    """Print the newest certificate of an erasure, as signed JSON."""
    from cli.erase.show import print_certificate

    run(lambda: print_certificate(url, erasure))


@app.command()
@with_access
def verify(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", exists=True, dir_okay=False, allow_dash=True, help="A certificate."
        ),
    ],
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Also check that it is about this key."),
    ] = None,
    is_hex: Annotated[bool, typer.Option("--hex", help="KEY is in hexadecimal digits.")] = False,
    is_base64: Annotated[bool, typer.Option("--base64", help="KEY is in base64.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Check a certificate: its signature, and that what it says holds in the logs of the broker now.

    The broker reads the topic below the offsets of the certificate. Exit code 1: it does not hold.
    """
    if is_hex and is_base64:
        raise typer.BadParameter("use either --hex or --base64")
    from cli.base.keys import form_of, parse_key
    from cli.erase.show import verify_certificate

    form = form_of(is_hex=is_hex, is_base64=is_base64)
    run(
        lambda: verify_certificate(
            url, file, None if key is None else parse_key(key, form), as_json=as_json
        )
    )
