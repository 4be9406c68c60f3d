"""Prints which passes can be undone, and what an undo did, for `kompakt compact undo`."""

from __future__ import annotations

import typer

from cleaner.rules.text import count_text, moment_text, size_text
from cli.base.output import print_table
from cli.compact.output import Json, name_of

TITLES = ("partition", "pass", "swapped (UTC)", "until (UTC)", "keeps", "can be undone")
TEXTS = {"partition", "swapped (UTC)", "until (UTC)", "can be undone"}


def print_kept(answer: Json) -> None:
    """Print one row for each pass that is kept, the newest of a partition first."""
    rows = [_row(part, each) for part in answer["partitions"] for each in part["passes"]]
    if rows:
        print_table(TITLES, rows, texts=TEXTS)
        return
    names = [name_of(part) for part in answer["partitions"]]
    is_off = all(part["undo_ms"] == 0 for part in answer["partitions"])
    typer.echo(
        f"no pass over {names[0] if len(names) == 1 else 'the topic'} can be undone"
        + (
            ": compaction.undo.ms is 0, so passes keep nothing of what they replace"
            if is_off
            else ""
        )
    )


def _row(part: Json, kept: Json) -> tuple[str, ...]:
    return (
        name_of(part),
        str(kept["number"]),
        moment_text(kept["swapped_ms"]).removesuffix(" UTC"),
        moment_text(kept["until_ms"]).removesuffix(" UTC"),
        size_text(kept["bytes"]),
        kept["refusal"] or "now",
    )


def print_undone(answer: Json) -> None:
    """Print what an undo did, and that the cleaning of the topic is paused."""
    name, topic = name_of(answer), answer["topic"]
    typer.echo(
        f"{name}: pass {answer['number']} is undone:"
        f" {count_text(answer['segments_restored'], 'segment')} with"
        f" {size_text(answer['bytes_restored'])} in place of {answer['segments_removed']:,};"
        f" dirty from offset {answer['clean_offset']} on"
    )
    typer.echo(
        f"the cleaning of {topic} is paused, or the cleaner would do the same again:"
        f" change what was wrong, then kompakt compact resume {topic}"
    )
