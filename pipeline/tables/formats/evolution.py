"""What a stream may change of a table's columns; without Spark."""

from __future__ import annotations

import enum


class Evolution(enum.StrEnum):
    """What happens if the values have other columns than the table."""

    STRICT = "strict"
    """The job ends, and nothing is written."""
    ADD = "add"
    """Columns that the table lacks are added, in the commit of the rows that have them; they are null in
    all other rows. So a column with a default, which those rows should have, ends the job."""
    ALL = "all"
    """Besides, columns get wider types or other names, or are dropped, before the rows are merged."""
