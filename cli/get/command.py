"""`kompakt get`: the last values of keys, which the broker looks up."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.base.access import with_access
from cli.base.command_end import run
from cli.base.options import (
    AsJson,
    KeysAreBase64,
    KeysAreHex,
    KeysFile,
    PrintedKeySeparator,
    Topic,
    WithDetails,
)
from cli.compact.options import DEFAULT_URL, Url


@with_access
def get(
    topic: Topic,
    key: Annotated[
        list[str] | None, typer.Argument(metavar="KEY...", help="The keys to look up.")
    ] = None,
    keys_file: KeysFile = None,
    is_hex: KeysAreHex = False,
    is_base64: KeysAreBase64 = False,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Search this partition only, not all."),
    ] = None,
    min_offset: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Answer from a state that includes this offset of --partition, such as that of your"
            " own write. Waits for it, 5 seconds by default.",
        ),
    ] = None,
    wait: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=60,
            help="Wait so long for another value than the present one, or for --min-offset.",
        ),
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Read from this snapshot, not from the topic as it is now. 'kompakt snapshot list'"
            " shows them.",
        ),
    ] = None,
    key_separator: PrintedKeySeparator = None,
    details: WithDetails = False,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Print the bytes of one value, not decoded, and no newline after them.",
        ),
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Print the last value of a key of a compacted topic; of several keys a table.

    The broker looks them up at the last stable offset, so nothing is consumed. If it has a schema
    registry, it decodes values that name their schema. Needs Read on the topic.
    Exit code 1: a key has no value, because it is deleted or not in the log.
    """
    if is_hex and is_base64:
        raise typer.BadParameter("use either --hex or --base64")
    from cli.base.keys import form_of, keys_of
    from cli.get.get import Lookup, get_values
    from cli.get.output import Printing

    printing = Printing(separator=key_separator, is_detailed=details, is_raw=raw, is_json=as_json)
    run(
        lambda: get_values(
            url,
            Lookup(
                topic=topic,
                keys=keys_of(key or [], keys_file, form_of(is_hex=is_hex, is_base64=is_base64)),
                partition=partition,
                min_offset=min_offset,
                wait_seconds=wait,
                is_raw=raw,
                snapshot=snapshot,
            ),
            printing,
        )
    )
