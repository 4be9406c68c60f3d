"""Turns counts of records into JSON values. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from server.live_records.counting import LiveRecords
from server.runtime.sliced_json import Json

Answer = LiveRecords | str
"""What was counted of a partition, or a clause that says why nothing was."""


def partition_records_json(partition: int, answer: Answer) -> Json:
    """Returns the records of a partition."""
    if isinstance(answer, str):
        return {"partition": partition, **_NOTHING, "error": answer}
    return {
        "partition": partition,
        "start_offset": answer.start_offset,
        "first_live_offset": answer.first_offset,
        "end_offset": answer.end_offset,
        "records": answer.records.records,
        "is_exact": answer.is_exact,
        "error": None,
    }


_NOTHING: Json = {
    "start_offset": None,
    "first_live_offset": None,
    "end_offset": None,
    "records": None,
    "is_exact": False,
}


def position_json(partition: int, offset: int, answer: Answer) -> Json:
    """Returns the records of a partition with those from an offset on."""
    return {
        **partition_records_json(partition, answer),
        "offset": offset,
        "record_lag": None if isinstance(answer, str) else answer.lag.records,
    }


def committed_json(topic: str, partition: int, offset: int, answer: Answer) -> Json:
    """Returns the lag of a group in a partition."""
    if isinstance(answer, str):
        known: Json = {"end_offset": None, "offset_lag": None, "record_lag": None}
        known |= {"records": None, "is_exact": False, "error": answer}
    else:
        known = {
            "end_offset": answer.end_offset,
            "offset_lag": max(answer.end_offset - max(offset, answer.start_offset), 0),
            "record_lag": answer.lag.records,
            "records": answer.records.records,
            "is_exact": answer.is_exact,
            "error": None,
        }
    return {"topic": topic, "partition": partition, "committed_offset": offset, **known}


def totals_json(answers: Sequence[Answer]) -> Json:
    """Returns the sums over the partitions that were counted; exact if all were, and exactly."""
    counted = [each for each in answers if not isinstance(each, str)]
    return {
        "records": sum(each.records.records for each in counted),
        "record_lag": sum(each.lag.records for each in counted),
        "is_exact": len(counted) == len(answers) and all(each.is_exact for each in counted),
    }
