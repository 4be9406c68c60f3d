"""The part of the broker's configuration that is about authorization.

Source: Apache Kafka, ServerConfigs.java, StandardAuthorizer.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.config_property import BOOLEAN, STRING, ConfigError, prop

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""Kafka's class names that switch authorization on. The second is that of Kafka with ZooKeeper."""


@dataclass(frozen=True, kw_only=True)
class AuthorizationConfig:
    """Whether ACLs are enforced, and what holds without one."""

    __slots__ = ()

    authorizer_class_name: str = prop(
        "authorizer.class.name",
        STRING,
        default="",
        choices=("", *AUTHORIZERS),
        dynamic=False,
        doc="Whether ACLs are enforced: one of Kafka's class names switches the broker's authorizer on."
        " Empty: every client may do everything, and the ACL requests get SECURITY_DISABLED.",
    )
    super_users: str = prop(
        "super.users",
        STRING,
        default="",
        dynamic=False,
        doc="The principals that may do everything, such as User:admin;User:CN=broker,O=Example."
        " Semicolons separate them.",
    )
    allow_everyone_if_no_acl_found: bool = prop(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        default=False,
        dynamic=False,
        doc="Whether a resource that no ACL matches is open to every client, or only to super.users.",
    )

    def resolved_super_users(self) -> tuple[str, ...]:
        """Returns the principals of `super.users`.

        Raises:
            ConfigError: one has no type or no name.
        """
        texts = tuple(text for each in self.super_users.split(";") if (text := each.strip()))
        for text in texts:
            kind, _, name = text.partition(":")
            if not kind or not name:
                raise ConfigError(
                    f"super.users: expected principals of the form User:name, but got {text}"
                )
        return texts
