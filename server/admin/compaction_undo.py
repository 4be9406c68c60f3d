"""Turns passes that can be undone, and the result of an undo, into JSON for the HTTP routes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from server.admin.compaction_json import partition_json
from server.runtime.sliced_json import Json
from storage.log.cleaning import Undone
from storage.log.log import PartitionLog


def kept_json(log: PartitionLog) -> Json:
    """Returns the passes of a partition whose replaced segments are kept, the newest first.

    Only the first one can be undone now; the others follow in this order.
    """
    return {
        **partition_json(log.topic_partition),
        "kept_bytes": log.kept_bytes,
        "kept_bytes_max": log.config.compaction_undo_bytes,
        "undo_ms": log.config.compaction_undo_ms,
        "passes": [
            {
                "number": each.number,
                "swapped_ms": each.kept_ms,
                "until_ms": each.kept_ms + log.config.compaction_undo_ms,
                "bytes": each.size_bytes,
                "segments": len(each.sources),
                "clean_offset": each.clean_offset,
                "refusal": log.undo_refusal(each.number),
            }
            for each in reversed(log.passes_kept)
        ],
    }


def undo_json(log: PartitionLog, entry: Mapping[str, Any]) -> Json | None:
    """Returns whether a pass of the history can still be undone; None if that is not known.

    Args:
        entry: a line of the history. It may be of an earlier topic of the same name, whose passes ended
            before the kept one began.
    """
    number = entry.get("undo_number", 0)
    for each in log.passes_kept:
        if number and each.number == number and each.kept_ms <= entry["ended_ms"]:
            until_ms = each.kept_ms + log.config.compaction_undo_ms
            return {"until_ms": until_ms, "refusal": log.undo_refusal(number)}
    return None


def undone_json(log: PartitionLog, undone: Undone, paused: Json) -> Json:
    """Returns what an undo did, and what is paused since."""
    return {
        **partition_json(log.topic_partition),
        "number": undone.number,
        "segments_removed": undone.segments_removed,
        "segments_restored": undone.segments_restored,
        "bytes_restored": undone.bytes_restored,
        "clean_offset": undone.clean_offset,
        "paused": paused,
    }
