"""The properties of the audit log. Kafka has none: it leaves its authorizer's log to log4j."""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.config_property import INT, LONG, STRING, prop


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """Where the audit log is, and how much of it is kept."""

    __slots__ = ()

    audit_log_file: str = prop(
        "audit.log.file",
        STRING,
        default="",
        dynamic=False,
        doc="The file of the audit log: a JSON object for each denied request, refused login and"
        " administrative change. Empty: audit.log in the directory of the metadata. Specific to"
        " Kompakt.",
    )
    audit_log_max_bytes: int = prop(
        "audit.log.max.bytes",
        LONG,
        default=16 << 20,
        at_least=1024,
        unit="bytes",
        dynamic=False,
        doc="The size at which a new file of the audit log begins. Specific to Kompakt.",
    )
    audit_log_backups: int = prop(
        "audit.log.backups",
        INT,
        default=4,
        at_least=1,
        dynamic=False,
        doc="How many full files of the audit log are kept. Specific to Kompakt.",
    )
