"""Decodes JSON into the objects of a shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from pipeline.export.columns.json_shapes import as_map_key, shape_of, type_of
from pipeline.export.columns.shapes import Struct
from pipeline.offsets.cut import TableRefused

NOT_DECODED = (msgspec.DecodeError, ValueError, RecursionError)


class JsonObjects:
    """Decodes objects of one struct. Any thread may call."""

    def __init__(self, kind: pa.StructType, option: str, *, is_closed: bool = False) -> None:
        """Raises TableRefused: a type or a name cannot be read from JSON.

        Args:
            option: the command's option that names the struct, for errors.
            is_closed: whether a field that the struct lacks is an error.
        """
        self.shape: Struct = shape_of(kind)
        try:
            strict = type_of(kind, is_lenient=False, is_closed=is_closed)
            lenient = type_of(kind, is_lenient=True, is_closed=is_closed)
            self._strict = msgspec.json.Decoder(strict, dec_hook=as_map_key)
            self._lenient = msgspec.json.Decoder(lenient, dec_hook=as_map_key)
        except (ValueError, TypeError) as error:
            raise TableRefused(f"{option} cannot be read: {error}") from error

    def decoded(self, texts: Sequence[bytes | None]) -> tuple[list[Any], list[int]]:
        """Returns an object for each text, None for None, and the rows that are no such objects: None,
        too."""
        bad = invalid_text(texts)
        objects: list[Any] = [None] * len(texts)
        decode = self._strict.decode
        for row, text in enumerate(texts):
            if text is None or row in bad:
                continue
            try:
                objects[row] = decode(text)
            except NOT_DECODED:
                objects[row] = self._leniently(text)
                if objects[row] is None:
                    bad.add(row)
        return objects, sorted(bad)

    def _leniently(self, text: bytes) -> Any:
        try:
            return self._lenient.decode(text)
        except NOT_DECODED:
            return None


def invalid_text(texts: Sequence[bytes | None]) -> set[int]:
    """Returns the rows that are no UTF-8."""
    try:
        pa.array(texts, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return {row for row, text in enumerate(texts) if text is not None and not _is_text(text)}
    return set()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
