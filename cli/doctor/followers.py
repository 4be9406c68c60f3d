"""Asks the running broker of a configuration who follows it, and which clusters it follows itself."""

from __future__ import annotations

from collections.abc import Iterator

from cleaner.rules.text import count_text, duration_text
from cli.doctor.findings import Finding, fine, warning
from cli.doctor.running_broker import Json, asked
from server.config.config import BrokerConfig
from server.metadata.followers import AWAY_SECONDS, LAG_ENTRIES_MAX, LAG_OFFSETS_MAX
from server.replication.state_table import MirrorState

IN_ORDER = (MirrorState.COPYING, MirrorState.CHECKING, MirrorState.PAUSED)
"""States of a mirrored partition that need no operator."""


def check_replication(config: BrokerConfig) -> Iterator[Finding]:
    """Yields a finding for each follower and link of the broker that runs with this configuration."""
    followers, links = asked(config, "/v1/metadata/followers"), asked(config, "/v1/links")
    for each in (followers or {}).get("followers", []):
        yield judge_follower(each, (followers or {})["start"])
    for each in (links or {}).get("links", []):
        yield judge_link(each)


def judge_follower(follower: Json, start: int) -> Finding:
    """Judge how far a follower is behind.

    Args:
        start: of the metadata's log; a follower that ends before it needs a snapshot.
    """
    topics = follower["coordinators"]
    lag = sum(topic["lag"] for topic in topics)
    text = (
        f"follower {follower['id']} on {follower['host']}: lag"
        f" {count_text(follower['lag'], 'entry', 'entries')} of the metadata,"
        f" {count_text(lag, 'offset')} of the coordinators' topics; seen"
        f" {duration_text(follower['seen_seconds_ago'])} ago"
    )
    if follower["seen_seconds_ago"] > AWAY_SECONDS:
        return warning("follower", text, "start it again, or ignore it if it was taken down")
    if follower["end"] < start:
        text += "; the broker no longer has the next entries, so it needs a snapshot"
        return warning("follower", text, "wait; kompakt standby status there shows the download")
    silent = [each["name"] for each in topics if each["seen_seconds_ago"] > AWAY_SECONDS]
    if silent:
        text += f"; it no longer asks for {' and '.join(silent)}"
        return warning("follower", text, "kompakt standby status there says why")
    is_behind = any(each["lag"] > LAG_OFFSETS_MAX for each in topics)
    if follower["lag"] > LAG_ENTRIES_MAX or is_behind:
        return warning("follower", text, "kompakt standby status there says why it is behind")
    return fine("follower", text)


def judge_link(link: Json) -> Finding:
    """Judge whether a link copies all its partitions."""
    partitions = link["partitions"]
    text = (
        f"link {link['name']} to {link.get('bootstrap', '(unknown)')}:"
        f" {count_text(len(partitions), 'partition')}, lag"
        f" {count_text(sum(each['lag'] for each in partitions), 'offset')}"
    )
    wrong = [each["reason"] for each in partitions if each["state"] not in IN_ORDER]
    problem = link["reason"] or next(iter([*link["problems"].values(), *wrong]), "")
    if problem:
        remedy = f"kompakt replica status {link['name']} shows each partition"
        return warning("link", f"{text}; {problem}", remedy)
    return fine("link", text)
