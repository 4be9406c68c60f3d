"""Says how many bytes passes would free, as the broker has measured it."""

from __future__ import annotations

from typing import Any

from cleaner.rules.text import count_text, size_text

Json = dict[str, Any]

UNKNOWN = "?"


def reclaimable_text(found: Json) -> str:
    """Returns what a pass over a partition would free."""
    return (
        f"a pass would free about {_size(found)}"
        f", {found['share']:.0%} of the {size_text(found['counted_bytes'])}"
        f" below offset {found['end_offset']}"
    )


def reclaimable_cell(found: Json | None) -> str:
    """Returns the same for a table; a question mark if it is not known."""
    return UNKNOWN if found is None else _size(found)


def total_text(known: Json) -> str:
    """Returns what passes over all partitions would free whose keys were counted."""
    counted = count_text(known["partitions_count"], "counted partition")
    return f"passes would free about {_size(known)} in {counted}"


def _size(found: Json) -> str:
    return f"{size_text(found['bytes'])} ± {size_text(found['bytes_error'])}"
