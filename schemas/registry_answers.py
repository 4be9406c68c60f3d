"""The answers of a schema registry. Pure.

    GET /schemas/ids/{id}                       {"schema": ..., "schemaType": ..., "references": [...]}
    GET /subjects/{subject}/versions/{version}  the same, with more fields

A registry leaves `schemaType` out for Avro, and `references` if there are none.

Source: Confluent, Schema Registry's API reference.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from schemas.outcomes import (
    REGISTRY_FAILED,
    REGISTRY_REFUSED,
    REGISTRY_UNREACHABLE,
    UNKNOWN_SCHEMA,
    UNSUPPORTED_SCHEMA,
)
from schemas.schema import SchemaType

LATEST = "latest"
"""Names the newest version of a subject."""
BUSY = (429, 502, 503, 504)
"""Statuses that say nothing of the schema."""


class Unavailable(Exception):
    """A schema cannot be had. The text is a sentence that says what to do."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Reference(msgspec.Struct, frozen=True):
    """Where a registry has a schema that another one refers to."""

    name: str
    subject: str
    version: int

    @property
    def path(self) -> str:
        return subject_path(self.subject, str(self.version))


def subject_path(subject: str, version: str) -> str:
    """Returns where a registry has a version of a subject: a number, or `LATEST`."""
    return f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"


class SchemaAnswer(msgspec.Struct, frozen=True, rename={"type": "schemaType"}):
    """One schema; the others that it refers to by their places."""

    schema: str
    id: int | None = None
    """Only with a subject's version."""
    type: str | None = None
    references: tuple[Reference, ...] | None = None

    def schema_type(self) -> SchemaType:
        """Returns the language of the schema. Raises Unavailable."""
        try:
            return SchemaType(self.type or "AVRO")
        except ValueError:
            known = ", ".join(each.value for each in SchemaType)
            raise Unavailable(
                UNSUPPORTED_SCHEMA,
                f"the schema's type is {(self.type or '')[:40]!r}; values are decoded of {known}",
            ) from None


def schema_answer(
    url: str, what: str, status: int, body: bytes, if_missing: str = ""
) -> SchemaAnswer:
    """Returns the schema in the answer of a registry.

    Args:
        url: of the registry, for errors.
        what: was asked for, for errors.
        if_missing: ends the sentence if the registry does not have it.

    Raises:
        Unavailable: there is none.
    """
    if status != 200:
        raise _refusal(url, what, status, if_missing)
    try:
        return msgspec.json.decode(body, type=SchemaAnswer)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unavailable(
            REGISTRY_REFUSED,
            f"what answers at {url} is no schema registry: check its URL ({error})",
        ) from error


def _refusal(url: str, what: str, status: int, if_missing: str) -> Unavailable:
    if status == 404:
        return Unavailable(UNKNOWN_SCHEMA, f"the registry at {url} has no {what}{if_missing}")
    if status in {401, 403}:
        return Unavailable(
            REGISTRY_REFUSED,
            f"the registry at {url} refuses the login with status {status}:"
            " check schema.registry.basic.auth.user.info",
        )
    if 300 <= status < 400:
        return Unavailable(
            REGISTRY_REFUSED,
            f"the registry at {url} redirects to another address, which is not followed:"
            " set schema.registry.url to that",
        )
    code = REGISTRY_UNREACHABLE if status in BUSY else REGISTRY_FAILED
    return Unavailable(code, f"the registry at {url} answered with status {status} to {what}")
