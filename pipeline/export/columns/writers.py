"""The schemas with which keys or values were written, each prepared once (`wire_header.py`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Encoding
from pipeline.tables.writer_schemas import NoWriterSchema, schemas_for
from schemas.wire_header import HEADER_BYTES, MAGIC

Prepared = TypeVar("Prepared")


class Unread(Exception):
    """A key or a value cannot be read. The text is a clause that says why."""


class Writers(Generic[Prepared]):
    """What is ready to read each writer's keys or values with. Any thread may call."""

    def __init__(self, encoding: Encoding, prepare: Callable[[str], Prepared]) -> None:
        """
        Args:
            encoding: of keys or values with headers.
            prepare: called once for the text of each schema. Raises NoWriterSchema.
        """
        self._part = encoding.part
        self._schemas = schemas_for(encoding)
        self._prepare = prepare
        self._found: dict[bytes, Prepared | Unread] = {}
        """By headers."""
        self._lock = threading.Lock()

    def of(self, data: bytes) -> Prepared:
        """Returns what reads a key or a value.

        Raises:
            Unread: it names no schema, or one that is not available.
            TableRefused: the registry does not answer.
        """
        header = data[:HEADER_BYTES]
        if len(data) <= HEADER_BYTES or header[0] != MAGIC:
            raise Unread(f"the {self._part} does not name a schema")
        found = self._found.get(header)
        if found is None:
            found = self._asked(header)
        if isinstance(found, Unread):
            # Without the traceback of those before it.
            raise Unread(*found.args)
        return found

    def _asked(self, header: bytes) -> Prepared | Unread:
        # One thread asks: the others wait for its answer.
        with self._lock:
            if header not in self._found:
                self._found[header] = self._fetched(int.from_bytes(header[1:]))
            return self._found[header]

    def _fetched(self, schema_id: int) -> Prepared | Unread:
        try:
            return self._prepare(self._schemas.text(schema_id))
        except NoWriterSchema as error:
            says = f"the {self._part} has the schema with id {schema_id}: {error}"
            if error.is_down:
                raise TableRefused(says) from error
            return Unread(says)
