"""How change events say what happened to a row, and where they have it (pure).

    Debezium   {"before": ..., "after": {"id": 7}, "op": "u", "source": ...}
    Maxwell    {"database": "shop", "table": "orders", "type": "update", "data": {"id": 7}, "old": ...}

Of an event only the operation and the row are read, so a connector may change the rest.

Sources: Debezium's documentation, "Data change events"; Maxwell's, "Data format" and "Bootstrapping".
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.tables.payload_options import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFields:
    """The events of one product."""

    product: str
    operation: str
    """The field that says what happened."""
    row: str
    """The field of the row, which an event leaves or has deleted."""
    leaves_row: tuple[str, ...]
    """The operations that leave the row."""
    leaves_none: tuple[str, ...]
    """Those after which the event's key has no row."""
    may_be_wrapped: bool
    """Whether JSON may have the event within {"schema": ..., "payload": the event}, as Connect's
    converter writes it."""

    @property
    def no_event(self) -> str:
        """Says that a value is no event, as a clause."""
        return f"the value is no event of {self.product} of this schema"

    @property
    def no_row(self) -> str:
        """Says that an event lacks the row that it leaves, as a clause."""
        return f"an event leaves a row, and has none in `{self.row}`"

    @property
    def unknown(self) -> tuple[str, str]:
        """What stands before and after an operation that is not known, as a clause."""
        return f"an event with {self.operation}=", " is not known here"


EVENTS = {
    Envelope.DEBEZIUM: EventFields(
        product="Debezium",
        operation="op",
        row="after",
        # Created, read by a snapshot, updated.
        leaves_row=("c", "r", "u"),
        leaves_none=("d",),
        may_be_wrapped=True,
    ),
    Envelope.MAXWELL: EventFields(
        product="Maxwell",
        operation="type",
        row="data",
        leaves_row=("insert", "update", "bootstrap-insert"),
        # The last two say when rows are read; their keys have a null in each column.
        leaves_none=("delete", "bootstrap-start", "bootstrap-complete"),
        may_be_wrapped=False,
    ),
}
"""The events by the envelope that the user names."""
