"""Writes the README's table of performance from `bench/results/peers.json`.

python -m bench.peers.readme
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.base.apache_kafka import NAME as KAFKA

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "results" / "peers.json"
BEGIN = "<!-- performance: python -m bench.peers.readme -->\n"
END = "<!-- end of performance -->\n"
SHOWN = (
    "start to the first produce",
    "memory, idle",
    "memory, after these loads",
    "cleaning, from the change of the policy to the end",
    "cleaning, CPU time",
    "cleaning, beside 1000 produces/s",
    "produce latency p99 at 1000/s beside cleaning, acks=1",
    "produce, one record, 1 connections, acks=1",
    "produce, one record, 16 connections, acks=1",
    "produce, one record, 1000 connections, acks=1",
    "produce, one record, 1 connections, acks=1, beside 1000 long polls",
    "produce, one record, 16 connections, acks=all",
    "produce, one record, 16 connections, acks=all, ours not synced",
    "produce, 16 KiB, 16 connections x 16 partitions, acks=1",
    "produce, 65 KiB, 1 connections, acks=1",
    "produce, 65 KiB, 1 connections, acks=all",
    "produce, one record to each of 1000 partitions in turn, acks=1",
    "produce, 65 KiB zstd, 1 connections, acks=1",
    "fetch, 64 KiB answers",
    "fetch, 1024 KiB answers",
    "fetch from the disk, 1024 KiB answers",
    "one record to a consumer of 10 partitions",
    "one record to a consumer of 10 partitions, ours not synced",
    "one record to a consumer of 1000 partitions",
    "delivery p50 at 2000 records/s",
    "delivery p99 at 2000 records/s",
    "delivery p50 at 2000 records/s, ours not synced",
    "delivery p99 at 2000 records/s, ours not synced",
    "metadata, one topic, 16 connections",
    "offset commit, one partition, 16 connections",
    "offset commit, one partition, 16 connections, ours not synced",
    "heartbeats, one group of 1000 members",
    "transactions, one producer, one partition",
    "transactions, one producer, one partition, ours not synced",
    "produce, 65 KiB, 1 connections, acks=1, over TLS",
    "fetch, 1024 KiB answers, over TLS",
)
"""The rows of the README; the results have more."""
HEADS = (
    f"| workload | Kompakt | {KAFKA} | ratio, above 1: Kompakt leads | CPU time of a request |\n"
    "|---|---|---|---|---|\n"
)


def performance_table(document: Mapping[str, Any], shown: Sequence[str] = SHOWN) -> str:
    """Returns the shown figures of `bench peers` in Markdown. Raises KeyError if one is missing."""
    figures = {figure["name"]: figure for figure in document["figures"]}
    machine = document["machine"]
    text = (
        f"Taken on {document['taken']} on {machine['cores']} cores, which brokers and clients share,\n"
        f"with CPython {machine['python']}: medians of interleaved pairs, each ratio with the range\n"
        "from its smallest to its largest value. Kafka has a heap of 1 GiB; Kompakt runs without its\n"
        "HTTP endpoint and, except for the passes, without its cleaner.\n\n"
    )
    return text + HEADS + "".join(_row(figures[name]) for name in shown)


def _row(figure: Mapping[str, Any]) -> str:
    ratio, low, high = (figure[name] for name in ("ratio", "ratio_from", "ratio_to"))
    if "less is better" in figure["limit_is"]:
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    mine, its = (_value(figure[name], figure["unit"]) for name in ("measured", "limit"))
    factor = f"{ratio:.2f} ({low:.2f} to {high:.2f})" if figure["pairs"] > 1 else f"{ratio:.2f}"
    has_cpu = " of CPU a request" in figure["note"]
    cpu = figure["note"].replace(" of CPU a request (peer ", ", ").rstrip(")") if has_cpu else ""
    return f"| {figure['name']} | {mine} | {its} | {factor} | {cpu} |\n"


def _value(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def with_table(readme: str, document: Mapping[str, Any]) -> str:
    """Returns the README's text with the current table."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + "\n" + performance_table(document) + "\n" + END + tail


if __name__ == "__main__":
    results = json.loads(RESULTS.read_text("utf-8"))
    README.write_text(with_table(README.read_text("utf-8"), results), "utf-8")
