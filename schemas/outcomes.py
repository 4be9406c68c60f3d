"""What comes of the attempt to decode a value. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from schemas.schema import SchemaType

UNKNOWN_SCHEMA = "unknown_schema"
REGISTRY_UNREACHABLE = "registry_unreachable"
REGISTRY_REFUSED = "registry_refused"
REGISTRY_FAILED = "registry_failed"
UNSUPPORTED_SCHEMA = "unsupported_schema"
NOT_INSTALLED = "not_installed"
BAD_VALUE = "bad_value"
TOO_COMPLEX = "too_complex"
TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A value, decoded."""

    schema_id: int
    schema_type: SchemaType
    json: bytes
    """Compact JSON: one line (docs/design/schemas.md has the form of each type)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecoded:
    """Why a value that names a schema is not decoded."""

    schema_id: int
    code: str
    """For programs: one of the codes above."""
    reason: str
    """A sentence for people, which says what to do where something can be done."""


Outcome: TypeAlias = Decoded | Undecoded


class DecodingFailed(Exception):
    """A value cannot be decoded. The text is a sentence."""

    code = BAD_VALUE


class BadValue(DecodingFailed):
    """The bytes are no value of the schema."""


class UnsupportedSchema(DecodingFailed):
    """The schema is broken, or uses something that its decoder does not know."""

    code = UNSUPPORTED_SCHEMA


class NotInstalled(DecodingFailed):
    """The library for this language of schemas is not installed."""

    code = NOT_INSTALLED


class TooLarge(DecodingFailed):
    """The value takes too much memory once it is decoded."""

    code = TOO_LARGE
