"""Turns estimates of what passes would free into JSON values for the HTTP routes. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from cleaner.rules.reclaimable import Reclaimable, total_error
from server.runtime.sliced_json import Json
from storage.formats.topic_partition import TopicPartition


def reclaimable_json(found: Reclaimable | None) -> Json | None:
    """Returns how many bytes a pass would free, with the standard error; null if it is not known."""
    if found is None:
        return None
    return {
        "bytes": found.bytes,
        "bytes_error": found.bytes_error,
        "share": round(found.share, 6),
        "share_error": round(found.share_error, 6),
        "counted_bytes": found.counted_bytes,
        "end_offset": found.end_offset,
    }


def all_reclaimable_json(known: Mapping[TopicPartition, Reclaimable], *, rows_max: int) -> Json:
    """Returns the sum over all partitions whose keys were counted, and those with the most to free."""
    largest = heapq.nlargest(rows_max, known.items(), key=lambda each: each[1].bytes)
    return {
        "partitions_count": len(known),
        "bytes": sum(found.bytes for found in known.values()),
        "bytes_error": total_error(found.bytes_error for found in known.values()),
        "partitions": [
            {"topic": partition.topic, "partition": partition.partition}
            | {"reclaimable": reclaimable_json(found)}
            for partition, found in largest
        ],
    }
