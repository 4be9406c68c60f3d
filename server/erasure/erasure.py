"""An erasure as a value, and as the metadata store has it.

    /erasures/<id>    {"topic", "topic_id", "requested_ms", "deadline_ms", "state", "claim": {...},
                      "hashes": {check of a hash key: hash}, "partitions": [[offset, has a tombstone],
                      ...], "certificate": null or the whole certificate, "ended_ms": null or n}

It has no key: two hashes of it (docs/design/erasure.md, "How a key is known").
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from server.erasure.state_table import ErasureState
from server.topics.names import parse_id
from storage.files.paths import topic_id_text
from storage.formats.key_sidecar import hash_key_check

PREFIX = "/erasures/"
ID_BYTES = 6

SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 14, 8, 1
"""16 MiB of memory and about 40 ms for each key that is tried."""
SALT_BYTES = 16
HASH_BYTES = 32

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyClaim:
    """A salted, slow hash of the key: shows those who know the key that it is the one."""

    salt: bytes
    hash: bytes

    @classmethod
    def of(cls, key: bytes) -> Self:
        """Returns a new claim. Takes about 40 ms, so it runs in a thread."""
        salt = secrets.token_bytes(SALT_BYTES)
        return cls(salt=salt, hash=_scrypt(key, salt))

    def holds_for(self, key: bytes) -> bool:
        """Returns whether it is about this key. Takes as long as `of`."""
        return hmac.compare_digest(self.hash, _scrypt(key, self.salt))

    def to_json(self) -> Json:
        """Returns it as JSON, with all that another program needs to check it."""
        return {
            "scheme": "scrypt",
            "n": SCRYPT_N,
            "r": SCRYPT_R,
            "p": SCRYPT_P,
            "salt": self.salt.hex(),
            "hash": self.hash.hex(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError if it is no claim of this release."""
        if [value[name] for name in ("scheme", "n", "r", "p")] != [
            "scrypt",
            SCRYPT_N,
            SCRYPT_R,
            SCRYPT_P,
        ]:
            raise ValueError("the hash of the key is not one that this release makes")
        return cls(salt=bytes.fromhex(value["salt"]), hash=bytes.fromhex(value["hash"]))


def _scrypt(key: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(key, salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, dklen=HASH_BYTES)


@dataclass(frozen=True, slots=True)
class ErasedPartition:
    """What an erasure concerns in one partition."""

    offset: int
    """Records of the key below it are part of the erasure: X. The offset of the tombstone, if there is
    one."""
    has_tombstone: bool
    """Whether the partition had a record of the key, and so got a tombstone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """One key of one topic that has to go by a deadline."""

    id: str
    topic: str
    topic_id: uuid.UUID
    requested_ms: int
    deadline_ms: int
    claim: KeyClaim
    hashes: Mapping[str, str]
    """The hash of the key in key sidecars, by the check of the hash key under which it was made; all in
    hexadecimal digits."""
    partitions: tuple[ErasedPartition, ...]
    """By partition number."""
    state: ErasureState = ErasureState.CLEANING
    certificate: Json | None = None
    """The newest one, with its signature."""
    ended_ms: int | None = None
    """When it became final."""

    @property
    def store_key(self) -> str:
        return PREFIX + self.id

    def key_hash(self, hash_key: bytes) -> bytes | None:
        """Returns the hash of its key under a log directory's secret; None if that is another secret
        than at the time of the request."""
        text = self.hashes.get(hash_key_check(hash_key).hex())
        return None if text is None else bytes.fromhex(text)

    def moved_to(self, state: ErasureState, now_ms: int) -> Erasure:
        """Returns it in another state."""
        return replace(self, state=state, ended_ms=now_ms if state.is_final else None)

    def to_store(self) -> str:
        """Returns its value in the metadata store."""
        value = {
            "topic": self.topic,
            "topic_id": topic_id_text(self.topic_id),
            "requested_ms": self.requested_ms,
            "deadline_ms": self.deadline_ms,
            "state": self.state.value,
            "claim": self.claim.to_json(),
            "hashes": dict(self.hashes),
            "partitions": [[each.offset, each.has_tombstone] for each in self.partitions],
            "certificate": self.certificate,
            "ended_ms": self.ended_ms,
        }
        return json.dumps(value)

    @classmethod
    def from_store(cls, store_key: str, text: str) -> Self:
        """Raises KeyError, TypeError or ValueError if it is no erasure of this release."""
        value = json.loads(text)
        return cls(
            id=store_key.removeprefix(PREFIX),
            topic=value["topic"],
            topic_id=parse_id(value["topic_id"]),
            requested_ms=value["requested_ms"],
            deadline_ms=value["deadline_ms"],
            state=ErasureState(value["state"]),
            claim=KeyClaim.from_json(value["claim"]),
            hashes=value["hashes"],
            partitions=tuple(ErasedPartition(*each) for each in value["partitions"]),
            certificate=value["certificate"],
            ended_ms=value["ended_ms"],
        )


def new_id() -> str:
    """Returns an id for an erasure: 12 hexadecimal digits."""
    return secrets.token_hex(ID_BYTES)
