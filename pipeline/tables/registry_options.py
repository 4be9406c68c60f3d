"""How a job reaches a schema registry: by its options, and a file that keeps passwords off the line."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.offsets.cut import TableRefused
from pipeline.tables.writer_schemas import lacks
from schemas.avro_schema import whole_avro_schema
from schemas.outcomes import DecodingFailed
from schemas.registry_access import BadRegistryUrl, RegistryAccess, registry_url
from schemas.registry_answers import LATEST, Unavailable
from schemas.registry_client import RegistryClient
from schemas.schema import Schema, SchemaType

USER_INFO = "schema.registry.basic.auth.user.info"
TRUSTED = "schema.registry.ssl.truststore.location"
SUBJECT = "subject:"
KNOWN = frozenset({USER_INFO, TRUSTED})


def registry_access(urls: Sequence[str] | None, config: Path | None) -> RegistryAccess | None:
    """Returns how to reach the registry of a job; None if it has none.

    Raises:
        TableRefused: the options make no sense, or a file cannot be read.
    """
    if not urls:
        if config is not None:
            raise TableRefused("--schema-registry-config goes with --schema-registry")
        return None
    found = {} if config is None else _properties(config)
    if unknown := sorted(found.keys() - KNOWN):
        raise TableRefused(
            f"--schema-registry-config has {unknown[0]}: there are {', '.join(KNOWN)}"
        )
    try:
        return RegistryAccess(
            urls=tuple(map(registry_url, urls)),
            user_info=found.get(USER_INFO, ""),
            tls=_trusting(found.get(TRUSTED)),
        )
    except BadRegistryUrl as error:
        raise TableRefused(f"--schema-registry: {error}") from error


@dataclass(frozen=True, slots=True)
class ReaderSchema:
    """The schema by which keys or values are read, as in `Encoding`."""

    text: str | None
    message: str | None = None


def reader_schema(
    option: str, said: str | None, schema_type: SchemaType | None, access: RegistryAccess | None
) -> ReaderSchema:
    """Returns the schema by which keys or values are read: what the user says, or a subject's.

    Args:
        said: `subject:NAME`, `subject:NAME:VERSION`, or the schema itself.
        schema_type: of the format; None if a registry has none for it.

    Raises:
        TableRefused: the subject cannot be had.
    """
    if said is None or not said.startswith(SUBJECT):
        return ReaderSchema(said)
    if access is None or schema_type not in (SchemaType.AVRO, SchemaType.PROTOBUF):
        raise TableRefused(
            f"{option} {said} needs --schema-registry, and the format avro or protobuf"
        )
    subject, _, version = said.removeprefix(SUBJECT).rpartition(":")
    if not subject or not (version.isdecimal() or version == LATEST):
        subject, version = said.removeprefix(SUBJECT), LATEST
    try:
        found = RegistryClient(access).of_subject(subject, version)
        if found.type is not schema_type:
            raise TableRefused(f"{option} {said}: the registry has it as {found.type.value}")
        return _reader_of(found)
    except (Unavailable, DecodingFailed) as error:
        raise TableRefused(f"{option} {said}: {error}") from error


def _reader_of(found: Schema) -> ReaderSchema:
    """Raises DecodingFailed."""
    if found.type is SchemaType.AVRO:
        return ReaderSchema(whole_avro_schema(found))
    try:
        # Few jobs need the library.
        from schemas.protobuf_rows import columns_ddl
        from schemas.protobuf_values import Messages, compiled
    except ImportError as error:
        raise lacks(error.name, found.type) from error
    first = Messages(compiled(found)).first
    return ReaderSchema(columns_ddl(first), first.full_name)


def _properties(config: Path) -> Mapping[str, str]:
    # Every job imports this module; few have such a file.
    from server.client.client_properties import read_properties
    from server.client.errors import Misconfigured

    try:
        return read_properties(config)
    except Misconfigured as error:
        raise TableRefused(f"--schema-registry-config {error}") from error


def _trusting(certificates: str | None) -> ssl.SSLContext | None:
    if certificates is None:
        return None
    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise TableRefused(f"{TRUSTED}={certificates} cannot be read: {error}") from error
