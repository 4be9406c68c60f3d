"""Turns counts of keys into JSON values. Pure.

Sizes are bytes, uncompressed unless they are of files, and null stands for what is not known or not
said; the reason is beside it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from cleaner.inspect.hot_keys import NamedHotKey
from cleaner.inspect.key_analysis import KeyAnalysis
from cleaner.keys.counts import KeyTally, histogram, hottest_keys, records_of_hottest
from cleaner.keys.growth import Forecast, Growth, KeySizes
from cleaner.rules.tombstone_debt import total_debt
from server.admin.compaction_json import debt_json, fence_json, partition_json
from server.runtime.sliced_json import Json

FENCES_LISTED_MAX = 20
"""So many damaged segments are listed."""


def keys_json(analysis: KeyAnalysis) -> Json:
    """Returns what was counted of a partition's keys."""
    growth, forecast = analysis.growth, analysis.forecasts
    return {
        "start_offset": analysis.start_offset,
        "end_offset": analysis.end_offset,
        "clean_offset": analysis.clean_offset,
        "counted_ms": analysis.counted_ms,
        **_counts_json([analysis]),
        "scans": analysis.parts,
        "damaged_segments": [fence_json(each) for each in analysis.damaged[:FENCES_LISTED_MAX]],
        "damaged_segments_count": len(analysis.damaged),
        **_distribution_json(analysis.tally, [each.counts.records for each in analysis.hot_keys]),
        "hot_keys": [_hot_key_json(each) for each in analysis.hot_keys],
        "tombstone_debt": debt_json(analysis.debt),
        "sizes": _sizes_json(analysis.sizes),
        "map_capacity_bytes": analysis.map_capacity_bytes,
        "growth": None if isinstance(growth, str) else _growth_json(growth),
        "no_growth_because": growth if isinstance(growth, str) else None,
        "forecasts": None
        if isinstance(forecast, str)
        else [{"days": each.days, **_sizes_json(each.sizes)} for each in forecast],
        "no_forecasts_because": forecast if isinstance(forecast, str) else None,
    }


def total_json(analyses: Sequence[KeyAnalysis]) -> Json:
    """Returns the sums over partitions, with the hottest keys among all.

    A key that is in two partitions counts twice, as for the cleaner.
    """
    tally = KeyTally()
    for each in analyses:
        tally = tally.plus(each.tally)
    hottest = heapq.nlargest(
        max((each.top for each in analyses), default=0),
        ((key, analysis) for analysis in analyses for key in analysis.hot_keys),
        key=lambda pair: pair[0].counts,
    )
    return {
        **_counts_json(analyses),
        **_distribution_json(tally, [key.counts.records for key, _ in hottest]),
        "hot_keys": [
            {
                **partition_json(analysis.topic_partition),
                **_hot_key_json(key),
            }
            for key, analysis in hottest
        ],
        "tombstone_debt": debt_json(total_debt(each.debt for each in analyses)),
        "forecasts": _total_forecasts([each.forecasts for each in analyses]),
    }


def _counts_json(analyses: Sequence[KeyAnalysis]) -> Json:
    return {
        "keys": sum(each.tally.keys for each in analyses),
        "live_keys": sum(each.tally.live for each in analyses),
        "deleted_keys": sum(each.deleted_keys for each in analyses),
        "records": sum(each.records for each in analyses),
        "record_bytes": sum(each.record_bytes for each in analyses),
        "superseded": sum(each.superseded for each in analyses),
        "live_bytes": sum(each.tally.live_bytes for each in analyses),
        "tombstones": sum(each.tombstones for each in analyses),
        "aborted": sum(each.aborted for each in analyses),
        "undecided": sum(each.undecided for each in analyses),
        "unkeyed": sum(each.unkeyed for each in analyses),
    }


def _distribution_json(tally: KeyTally, listed: Sequence[int]) -> Json:
    """Returns the keys by their number of records, and which share of the records hot keys have.

    Args:
        listed: the records of the hot keys that are listed.
    """
    rows = histogram(tally.classes)
    records = sum(row.records for row in rows)
    hottest = hottest_keys(tally.keys)
    of_hottest = records_of_hottest(tally.classes, hottest)
    return {
        "versions": [row._asdict() for row in rows],
        "skew": {
            "hottest_percent_keys": hottest,
            "hottest_percent_share": round(of_hottest / records, 6) if records else None,
            "hot_keys_share": round(sum(listed) / records, 6) if records else None,
        },
    }


def _hot_key_json(key: NamedHotKey) -> Json:
    counts, shown, size = key.counts, key.key, key.key_bytes
    return {
        "key": None if shown is None else _text_of(shown),
        "key_hex": None if shown is None else shown.hex(),
        "key_bytes": size,
        "is_key_cut": shown is not None and size != len(shown),
        "records": counts.records,
        "record_bytes": counts.record_bytes,
        "last_offset": counts.last_offset,
        "is_deleted": counts.is_deleted,
    }


def _text_of(key: bytes) -> str | None:
    """Returns a key as text; None if it is none."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _growth_json(growth: Growth) -> Json:
    return {
        "since_offset": growth.offset,
        "since_ms": growth.since_ms,
        "period_ms": growth.period_ms,
        "records": growth.records,
        "record_bytes": growth.record_bytes,
        "new_keys": growth.new_keys,
        "net_live_keys": growth.net_live,
        "per_hour": None
        if growth.per_hour(0) is None
        else {
            "records": growth.per_hour(growth.records),
            "record_bytes": growth.per_hour(growth.record_bytes),
            "new_keys": growth.per_hour(growth.new_keys),
            "net_live_keys": growth.per_hour(growth.net_live),
        },
        "new_keys_by_age": [
            {
                "window_ms": each.window_ms,
                "at_least": each.at_least,
                "at_most": each.at_most,
            }
            for each in growth.windows
        ],
    }


def _sizes_json(sizes: KeySizes) -> Json:
    return {
        "live_keys": sizes.live_keys,
        "log_bytes": sizes.log_bytes,
        "map_bytes": sizes.map_bytes,
    }


def _total_forecasts(forecasts: Sequence[tuple[Forecast, ...] | str]) -> list[Json] | None:
    """Returns the sums of the partitions' forecasts; None if a partition has none."""
    known = [each for each in forecasts if not isinstance(each, str)]
    if len(known) < len(forecasts) or not known:
        return None
    return [_total_forecast(same_day) for same_day in zip(*known, strict=True)]


def _total_forecast(forecasts: Sequence[Forecast]) -> Json:
    sizes = [each.sizes for each in forecasts]
    logs = [each.log_bytes for each in sizes if each.log_bytes is not None]
    return {
        "days": forecasts[0].days,
        "live_keys": sum(each.live_keys for each in sizes),
        "log_bytes": sum(logs) if len(logs) == len(sizes) else None,
        "map_bytes": max(each.map_bytes for each in sizes),
    }
