"""The result of decoding keys or values, the same for all formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.export.columns.shapes import Struct


@dataclass(frozen=True, slots=True)
class Decoded:
    """An object for each key or value."""

    objects: list[Any]
    """None for None, and for what cannot be read."""
    whys: dict[int, str]
    """Why rows cannot be read, as clauses."""


class Decoder(Protocol):
    """Decodes keys or values. Any thread may call."""

    @property
    def shape(self) -> Struct:
        """Where the objects have their columns."""

    def decode(self, data: Sequence[bytes | None]) -> Decoded:
        """Decode keys or values. Raises TableRefused: the registry does not answer."""
