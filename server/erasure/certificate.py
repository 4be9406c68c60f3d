"""The certificate of an erasure: what is said, how it is signed, and how the signature is checked. Pure.

    {"certificate": {...}, "public_key": 64 hexadecimal digits, "signature": 128 hexadecimal digits}

Signed is the canonical form of the value of `certificate`: JSON with sorted keys, without spaces, in
ASCII. It has integers and texts only, so each program gets the same bytes. Fields are only added:

    kind, version        "kompakt erasure certificate", 1
    state                "erased": no record is left below the offsets; "complete": nor a tombstone
    id, requested_ms, deadline_ms, issued_ms
    cluster_id, node_id, topic, topic_id
    key                  the salted hash of the key: {"scheme": "scrypt", "n", "r", "p", "salt", "hash"}
    partitions           [{"partition", "below": X, "had_records", "tombstone": its offset or null,
                         "key_hash": as key sidecars have it, "secret": names the secret of the log
                         directory, "generation", "clean_offset", "log_start_offset", "segments",
                         "records_read", "bytes_read", "read_ms", "unlinked_ms"}]
    states, not_covered  sentences for people
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from server.erasure.erasure import Erasure, KeyClaim
from server.erasure.state_table import ErasureState
from storage.files.paths import topic_id_text
from storage.files.signing_key import SigningKey, verify

KIND = "kompakt erasure certificate"
VERSION = 1

NOT_COVERED = (
    "copies of the topic at mirrors, standbys and other clusters, which apply the tombstone by"
    " themselves",
    "copies at consumers, and what they have derived from the records",
    "backups, and snapshots of volumes or file systems",
    "blocks that the disk has freed and not overwritten yet: files were removed, not overwritten",
    "the key or its data inside the values of other records",
    "records of the key that were produced at or above the offsets",
)

Json = dict[str, Any]


class BadCertificate(Exception):
    """A text is no certificate, or its signature does not hold. One sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProof:
    """What a reading of a partition's log has shown."""

    partition: int
    below: int
    """No record of the key was found below this offset: the tombstone's, or one more if that is gone."""
    had_records: bool
    tombstone: int | None
    """The offset of a tombstone that is still there."""
    key_hash: str
    secret: str
    generation: int
    clean_offset: int
    log_start_offset: int
    segments: int
    records_read: int
    bytes_read: int
    read_ms: int
    unlinked_ms: int
    """By then the files were gone that the log no longer used when it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """The broker that certifies."""

    cluster_id: str
    node_id: int
    key: SigningKey
    followers: tuple[str, ...] = ()
    """The names of brokers that follow it, as far as it knows."""


def issue(
    erasure: Erasure,
    state: ErasureState,
    proofs: Sequence[PartitionProof | Json],
    issuer: Issuer,
    now_ms: int,
) -> Json:
    """Returns a signed certificate.

    Args:
        proofs: of all partitions; those of an earlier certificate as that has them.
    """
    body: Json = {
        "kind": KIND,
        "version": VERSION,
        "state": state.value,
        "id": erasure.id,
        "requested_ms": erasure.requested_ms,
        "deadline_ms": erasure.deadline_ms,
        "issued_ms": now_ms,
        "cluster_id": issuer.cluster_id,
        "node_id": issuer.node_id,
        "topic": erasure.topic,
        "topic_id": topic_id_text(erasure.topic_id),
        "key": erasure.claim.to_json(),
        "partitions": [
            asdict(each) if isinstance(each, PartitionProof) else each for each in proofs
        ],
        "states": list(_statements(state)),
        "not_covered": [*NOT_COVERED, *_followers(issuer)],
    }
    return {
        "certificate": body,
        "public_key": issuer.key.public_key.hex(),
        "signature": issuer.key.sign(canonical(body)).hex(),
    }


def _statements(state: ErasureState) -> Iterable[str]:
    yield (
        "in each partition the broker has read all of the log below the offset, and no record there has"
        " the key"
    )
    yield "the files that had such records were removed by the time given, and nothing was kept aside"
    if state is ErasureState.COMPLETE:
        yield "the tombstones, which had the key, are gone as well"
    else:
        yield "tombstones with the key are left at the offsets given; readers have to see them"


def _followers(issuer: Issuer) -> Iterable[str]:
    if issuer.followers:
        yield f"brokers that follow this one: {', '.join(sorted(issuer.followers))}"


def canonical(body: Mapping[str, Any]) -> bytes:
    """Returns the bytes that are signed."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")


def checked(value: object) -> Json:
    """Returns what a certificate says, once its form and its signature are checked.

    Raises:
        BadCertificate: it is no certificate, or it was changed after it was signed.
    """
    if not isinstance(value, dict):
        raise BadCertificate("it is not a JSON object")
    body = value.get("certificate")
    if not isinstance(body, dict) or body.get("kind") != KIND:
        raise BadCertificate("it is not the certificate of an erasure")
    if body.get("version") != VERSION:
        raise BadCertificate(
            f"its version is {body.get('version')!r}, this release reads {VERSION}"
        )
    if not verify(_bytes_in(value, "public_key"), canonical(body), _bytes_in(value, "signature")):
        raise BadCertificate("its signature does not hold: it was changed after it was signed")
    try:
        return _sound(body)
    except (KeyError, TypeError, ValueError) as error:
        raise BadCertificate(f"it is incomplete: {error!r}") from error


def _bytes_in(value: Mapping[str, Any], name: str) -> bytes:
    text = value.get(name)
    try:
        return bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return b""


def _sound(body: Json) -> Json:
    """Returns the body if the fields that a verification reads are there."""
    KeyClaim.from_json(body["key"])
    ErasureState(body["state"])
    for each in body["partitions"]:
        if not (isinstance(each["partition"], int) and isinstance(each["below"], int)):
            raise TypeError("partition and below are numbers")
        bytes.fromhex(each["key_hash"])
        bytes.fromhex(each["secret"])
    missing = [name for name in ("id", "topic", "topic_id", "issued_ms") if name not in body]
    if missing:
        raise ValueError(f"it lacks {missing[0]}")
    return body
