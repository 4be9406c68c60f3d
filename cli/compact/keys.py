"""`kompakt compact keys`: lets the broker count the keys of a topic, and prints what it found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

import typer

from cleaner.rules.text import count_text, duration_text, moment_text, size_text
from cli.base.command_end import EXIT_FAILED, complain
from cli.base.output import print_json, print_table
from cli.base.record_text import printable
from cli.compact.client import connected
from cli.compact.follow import follow_read_only
from cli.compact.output import LEFT_ALIGNED, Json, debt_text, name_of

TEXTS = LEFT_ALIGNED | {"key", "records a key"}


async def count_keys(
    url: str, target: str, partition: int | None, *, top: int, as_json: bool
) -> int:
    """Count the keys of a target, wait until that is done, and return the exit code.

    Args:
        partition: of the topic named `target`; None: the target says it.
    """
    query = {"top": str(top)}
    async with connected(url) as client:
        if partition is None:
            job = await client.call_on("POST", target, "/keys", query)
        else:
            where = f"/topics/{quote(target, safe='')}/partitions/{partition}"
            job = await client.call("POST", f"{where}/keys", query)
        await follow_read_only(client, job, as_json=as_json)
        topic = quote(job["partitions"][0]["topic"], safe="")
        job = await client.call("GET", f"/topics/{topic}/keys/{job['id']}")
    if as_json:
        print_json(job)
    for part in job["partitions"]:
        if part["error"] is not None:
            complain(f"{name_of(part)}: {part['state']}: {part['error']}")
    counted = [part for part in job["partitions"] if part["keys"] is not None]
    if not as_json:
        print_keys(counted, job["total"])
    return 0 if job["is_done"] else EXIT_FAILED


def print_keys(parts: Sequence[Json], total: Json | None) -> None:
    """Print the counts of partitions, and what is known of all of them together.

    Args:
        total: None if not all partitions were counted.
    """
    if not parts:
        return
    rows = [(name_of(part), *_counts(part["keys"])) for part in parts]
    if total is not None and len(parts) > 1:
        rows.append(("all", *_counts(total)))
    titles = ("partition", "keys", "live", "deleted", "records", "superseded", "size")
    print_table(titles, rows, texts=TEXTS)
    for part in parts:
        for line in _left_out(part["keys"]):
            typer.echo(f"{name_of(part)}: {line}")
    if total is not None and total["keys"]:
        _print_distribution(total, has_partitions=len(parts) > 1)
        typer.echo(debt_text(total["tombstone_debt"]))
    _print_growth(parts)
    _print_sizes(parts)


def _counts(keys: Json) -> tuple[str, ...]:
    names = ("keys", "live_keys", "deleted_keys", "records", "superseded")
    return (*(f"{keys[name]:,}" for name in names), size_text(keys["record_bytes"]))


def _left_out(keys: Json) -> Iterator[str]:
    """Yields what counts for no key."""
    if keys["aborted"]:
        yield f"{count_text(keys['aborted'], 'record')} of aborted transactions left out"
    if keys["undecided"]:
        yield f"{count_text(keys['undecided'], 'record')} of open transactions left out"
    if keys["unkeyed"]:
        yield f"{count_text(keys['unkeyed'], 'record')} without a key left out"
    for fence in keys["damaged_segments"]:
        yield (
            f"the damaged segment with offsets [{fence['base_offset']}, {fence['end_offset']})"
            f" was not counted: {fence['reason']}"
        )
    more = keys["damaged_segments_count"] - len(keys["damaged_segments"])
    if more > 0:
        yield f"{count_text(more, 'more damaged segment')} not counted"


def _print_distribution(total: Json, *, has_partitions: bool) -> None:
    """Print the hot keys, and how many keys have how many records."""
    typer.echo("the hottest keys, by their records on disk:")
    where = ("partition",) if has_partitions else ()
    print_table(
        (*where, "key", "records", "size", "last offset"),
        [
            (
                *((name_of(each),) if has_partitions else ()),
                key_text(each),
                f"{each['records']:,}",
                size_text(each["record_bytes"]),
                f"{each['last_offset']}{' (tombstone)' if each['is_deleted'] else ''}",
            )
            for each in total["hot_keys"]
        ],
        texts=TEXTS,
    )
    print_table(
        ("records a key", "keys", "records"),
        [(_range(row), f"{row['keys']:,}", f"{row['records']:,}") for row in total["versions"]],
        texts=TEXTS,
    )
    skew = total["skew"]
    typer.echo(
        f"the hottest 1 % ({count_text(skew['hottest_percent_keys'], 'key')}) has"
        f" {skew['hottest_percent_share']:.1%} of the records, the keys listed above"
        f" {skew['hot_keys_share']:.1%}"
    )


def key_text(key: Json) -> str:
    """Returns a hot key as text, quoted or in hexadecimal where it is not printable."""
    if key["key_hex"] is None:
        return "(its last record cannot be read)"
    text = printable(bytes.fromhex(key["key_hex"])).decode(errors="replace")
    return f"{text}... ({size_text(key['key_bytes'])})" if key["is_key_cut"] else text


def _range(row: Json) -> str:
    return (
        f"{row['least']:,}" if row["least"] == row["most"] else f"{row['least']:,}-{row['most']:,}"
    )


def _print_growth(parts: Sequence[Json]) -> None:
    """Print how the keys of partitions have changed, or why that is not known."""
    grown = [part for part in parts if part["keys"]["growth"] is not None]
    if grown:
        typer.echo("growth since the last pass, or since the log began:")
        titles = ("partition", "from (UTC)", "records", "size", "new keys", "live keys")
        rates = ("records/h", "new keys/h", "live keys/h")
        rows = [(name_of(part), *_growth_cells(part["keys"]["growth"])) for part in grown]
        print_table((*titles, *rates), rows, texts=TEXTS | {"from (UTC)"})
    for part in grown:
        for each in part["keys"]["growth"]["new_keys_by_age"]:
            typer.echo(
                f"{name_of(part)}: new keys of the last {duration_text(each['window_ms'] / 1000)}:"
                f" {_between(each['at_least'], each['at_most'])}"
            )
    for part in parts:
        if part["keys"]["growth"] is None and part["keys"]["keys"]:
            because = part["keys"]["no_growth_because"]
            typer.echo(f"{name_of(part)}: nothing is said about growth: {because}")


def _growth_cells(growth: Json) -> tuple[str, ...]:
    rates = growth["per_hour"]
    return (
        moment_text(growth["since_ms"]).removesuffix(" UTC"),
        f"{growth['records']:,}",
        size_text(growth["record_bytes"]),
        f"{growth['new_keys']:,}",
        f"{growth['net_live_keys']:+,}",
        *(
            ("", "", "")
            if rates is None
            else (
                f"{rates['records']:,.1f}",
                f"{rates['new_keys']:,.1f}",
                f"{rates['net_live_keys']:+,.1f}",
            )
        ),
    )


def _between(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _print_sizes(parts: Sequence[Json]) -> None:
    """Print what the keys take now, and in some days at the rates so far."""
    rows: list[tuple[str, ...]] = []
    for part in parts:
        keys = part["keys"]
        if keys["keys"]:
            rows.append((name_of(part), "now", *_size_cells(keys["sizes"])))
        rows += [
            (name_of(part), f"in {count_text(each['days'], 'day')}", *_size_cells(each))
            for each in keys["forecasts"] or ()
        ]
    if not rows:
        return
    print_table(("partition", "", "live keys", "cleaned log", "offset map"), rows, texts=TEXTS)
    reasons = {
        part["keys"]["no_forecasts_because"]
        for part in parts
        if part["keys"]["growth"] is not None and part["keys"]["forecasts"] is None
    }
    for reason in sorted(reasons):
        typer.echo(f"no forecast: {reason}")


def _size_cells(sizes: Json) -> tuple[str, ...]:
    log_bytes = sizes["log_bytes"]
    return (
        f"{sizes['live_keys']:,}",
        "not known" if log_bytes is None else size_text(log_bytes),
        size_text(sizes["map_bytes"]),
    )
