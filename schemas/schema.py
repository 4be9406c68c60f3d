"""A schema as a registry has it. Pure."""

from __future__ import annotations

import enum

import msgspec


class SchemaType(enum.Enum):
    """The languages of schemas, with the registry's names for them."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class Named(msgspec.Struct, frozen=True):
    """A schema that another one refers to."""

    name: str
    """The name by which the other refers to it: Avro's full name, or the path of a Protobuf import."""
    text: str


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema and all that it refers to. It never changes: a registry gives another text another id."""

    id: int
    type: SchemaType
    text: str
    references: tuple[Named, ...] = ()
    """Each after those that it refers to itself."""

    @property
    def chars(self) -> int:
        """How large its texts are together, in characters."""
        return len(self.text) + sum(len(each.text) for each in self.references)
