"""Reads the changes of a topic's settings that a preview is asked about.

    {"changes": [{"name": "cleanup.policy", "operation": "set", "value": "compact"},
                 {"name": "retention.ms", "operation": "delete"}]}

An operation is set, delete, append or subtract, as in IncrementalAlterConfigs.
"""

from __future__ import annotations

import json

from server.admin.refusals import CompactionRefused
from server.config.changes import ConfigChange, Operation

CHANGES_BYTES_MAX = 64 << 10
SHAPE = '{"changes": [{"name": "cleanup.policy", "operation": "set", "value": "compact"}]}'
OPERATIONS = {operation.name.lower(): operation for operation in Operation}


def parse_changes(body: bytes) -> tuple[ConfigChange, ...]:
    """Returns the changes in a request's body. Pure.

    Raises:
        CompactionRefused: 400, the body has another form.
    """
    try:
        content = json.loads(body)
        return tuple(_change(each) for each in content["changes"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CompactionRefused(400, f"send the changes as JSON, such as {SHAPE}") from None


def _change(entry: dict[str, object]) -> ConfigChange:
    """Raises KeyError or TypeError if the entry is no change."""
    name, value = entry["name"], entry.get("value")
    if not isinstance(name, str) or not isinstance(value, str | None):
        raise TypeError
    return ConfigChange(name=name, operation=OPERATIONS[str(entry["operation"])], value=value)
