"""Principals: the identities for which ACLs and quotas are declared.

    User:alice        a type, a colon, a name; the name may contain colons

Source: Apache Kafka, KafkaPrincipal.java, SecurityUtils.java `parseKafkaPrincipal`.
"""

from __future__ import annotations

from typing import NamedTuple

USER_TYPE = "User"


class Principal(NamedTuple):
    """An identity. The broker authenticates users only; ACLs may name any type.

    A named tuple, because every check of a permission hashes it.
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Returns the principal in `text`, as in an ACL or in `super.users`.

        Raises:
            ValueError: there is no colon, or nothing before it.
        """
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(
                f"expected a principal of the form User:name, but got {text or 'an empty text'}"
            )
        return cls(kind, name)


def user(name: str) -> Principal:
    """Returns the principal of a user."""
    return Principal(USER_TYPE, name)


ANONYMOUS = user("ANONYMOUS")
"""Clients of listeners without authentication, and TLS clients without a certificate."""
