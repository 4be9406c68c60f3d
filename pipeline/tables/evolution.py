"""What a stream may change of a table's columns; without Spark."""

from __future__ import annotations

import enum


class Evolution(enum.StrEnum):
    """What happens if the values have columns that the table lacks."""

    STRICT = "strict"
    """The job ends, and nothing is written."""
    ADD = "add"
    """They are added, in the commit of the rows that have them; they are null in all other rows."""
