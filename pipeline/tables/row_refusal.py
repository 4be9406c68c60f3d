"""Ends a job at a record that it cannot take, with a sentence that says where that is."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def only_if(is_fine: Column, found: Column, says: str | Column) -> Column:
    """Returns a column, or raises an error at the first record for which a condition is not true.

    A condition of its own, in a filter, could be moved behind another filter that hides the record.
    """
    return F.when(is_fine, found).otherwise(refusal(says))


def refusal(says: str | Column) -> Column:
    """Returns a column of any type whose evaluation ends the job with the record's place and `says`."""
    place = F.format_string("%s-%d, offset %d: ", "topic", "partition", "offset")
    clause = says if isinstance(says, Column) else F.lit(says)
    return F.raise_error(F.concat(place, clause))
