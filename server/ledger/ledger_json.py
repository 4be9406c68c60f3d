"""Turns what a ledger says into JSON values, for the HTTP routes and the command line. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cleaner.inspect.ledger_passes import LedgerGroup, LedgerPass
from storage.verify.ledger import LedgerReport

Json = dict[str, Any]

GROUP_MEMBERS = (
    "generation",
    "dirty",
    "sources",
    "outputs",
    "verdicts",
    "remains",
    "clean_offset",
    "settings",
)


def pass_json(each: LedgerPass, groups: Iterable[LedgerGroup] | None = None) -> Json:
    """Returns a pass with its groups, or with some of them."""
    end = each.end or {}
    return {
        "pass_id": each.pass_id,
        "topic": each.topic,
        "topic_id": each.topic_id,
        "partition": each.partition,
        "began_ms": each.at_ms,
        "ended_ms": each.ended_ms,
        "result": each.result,
        "error": end.get("error"),
        "reason": each.groups[0].members["reason"],
        "groups": [_group_json(group) for group in (each.groups if groups is None else groups)],
    }


def _group_json(group: LedgerGroup) -> Json:
    return {
        "entry": group.number,
        "outcome": group.outcome,
        "start_offset": group.start_offset,
        "end_offset": group.end_offset,
        "dropped": group.dropped,
        **{name: group.members[name] for name in GROUP_MEMBERS},
    }


def ledger_report_json(report: LedgerReport) -> Json:
    """Returns the result of a verification."""
    return {
        "path": report.path,
        "is_sound": report.is_sound,
        "entries": report.entries,
        "first": report.first,
        "head": {
            "number": report.head.number,
            "hash": report.head.hash,
            "at_ms": report.head.at_ms,
        },
        "passes": report.passes,
        "groups": report.groups,
        "segments": report.segments,
        "recomputed": report.recomputed,
        "recomputed_bytes": report.recomputed_bytes,
        "shortened": report.shortened,
        "older": report.older,
        "without_ledger": report.without_ledger,
        "anchors": report.anchors,
        "findings": [
            {
                "severity": each.severity.value,
                "path": each.path,
                "position": each.position,
                "text": each.text,
            }
            for each in report.findings
        ],
    }
