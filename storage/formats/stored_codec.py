"""The codec with which a topic stores its batches (compression.type, compression.*.level)."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.records.compression import Codec


@dataclass(frozen=True, slots=True)
class StoredCodec:
    """A codec and its level."""

    codec: Codec
    level: int | None = None
    """The codec's own level; None selects the default of Kafka's clients."""
