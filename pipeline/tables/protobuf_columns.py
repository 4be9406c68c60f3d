"""Reads Protobuf in a column, in Python on the executors: Spark's own functions are not published.

The schemas are compiled by the driver; the executors need the library `protobuf` and this package.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.tables.wire_columns import schema_id
from schemas.outcomes import BadValue

if TYPE_CHECKING:
    from schemas.protobuf_values import Messages

SCHEMAS_MAX = 64
"""So many are kept ready to read with."""


def json_of(column: str, writers: Mapping[int, str], expected: str | None) -> Column:
    """Returns the JSON of messages with headers; null for what is none, or of another schema.

    Args:
        writers: the compiled schemas by their ids, in base64.
        expected: the full name that each message must have; None: any.
    """
    read = F.arrow_udf(reader(writers, expected), "string")
    return read(F.col(column), schema_id(column))


def reader(
    writers: Mapping[int, str], expected: str | None
) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Returns the function that an executor runs."""

    def read(values: pa.Array, ids: pa.Array) -> pa.Array:
        # Executors import this, and the driver of a job without Protobuf does not have it.
        from schemas.protobuf_rows import row_json

        known = {number: messages_of(text) for number, text in writers.items()}

        def one(value: bytes | None, number: int | None) -> bytes | None:
            messages = None if number is None else known.get(number)
            if value is None or messages is None:
                return None
            try:
                return row_json(messages, value, expected)
            except BadValue:
                return None

        pairs = zip(values.to_pylist(), ids.to_pylist(), strict=True)
        return pa.array([one(*each) for each in pairs], pa.binary()).cast(pa.string())

    return read


@lru_cache(SCHEMAS_MAX)
def messages_of(text: str) -> Messages:
    """Returns the messages of a compiled schema in base64; the same for all batches of an executor."""
    from schemas.protobuf_values import Messages

    return Messages(b64decode(text))
