"""Certificates: signed in one form, without the key, and refused if a bit of them was changed."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from server.erasure.certificate import (
    BadCertificate,
    Issuer,
    PartitionProof,
    canonical,
    checked,
    issue,
)
from server.erasure.erasure import ErasedPartition, Erasure, KeyClaim
from server.erasure.state_table import ErasureState
from storage.files.local_files import LocalFileSystem
from storage.files.signing_key import SigningKey

Json = dict[str, Any]
KEY = b"alice@example.org"
ERASURE = Erasure(
    id="0123456789ab",
    topic="people",
    topic_id=uuid.UUID(int=7),
    requested_ms=1,
    deadline_ms=2,
    claim=KeyClaim.of(KEY),
    hashes={"00" * 8: "11" * 16},
    partitions=(ErasedPartition(5, True), ErasedPartition(3, False)),
)
PROOF = PartitionProof(
    partition=0,
    below=5,
    had_records=True,
    tombstone=5,
    key_hash="11" * 16,
    secret="00" * 8,
    generation=1,
    clean_offset=6,
    log_start_offset=0,
    segments=2,
    records_read=4,
    bytes_read=300,
    read_ms=3,
    unlinked_ms=4,
)


@pytest.fixture
def signed(tmp_path: Path) -> Json:
    key = SigningKey.load_or_create(LocalFileSystem(), str(tmp_path))
    issuer = Issuer(cluster_id="cluster", node_id=0, key=key)
    return issue(ERASURE, ErasureState.ERASED, [PROOF], issuer, 9)


def test_a_certificate_holds_after_any_program_has_written_it_again(signed: Json) -> None:
    written = json.loads(json.dumps(signed, indent=4, sort_keys=True))

    assert checked(written) == signed["certificate"]


def test_brokers_that_are_known_to_have_copies_are_named(tmp_path: Path) -> None:
    key = SigningKey.load_or_create(LocalFileSystem(), str(tmp_path))
    issuer = Issuer(cluster_id="cluster", node_id=0, key=key, followers=("standby-2", "standby-1"))

    said = issue(ERASURE, ErasureState.ERASED, [PROOF], issuer, 9)["certificate"]

    assert said["not_covered"][-1] == "brokers that follow this one: standby-1, standby-2"


def test_it_has_no_key_and_shows_those_who_know_it_that_it_is_the_one(signed: Json) -> None:
    text = json.dumps(signed)
    claim = KeyClaim.from_json(signed["certificate"]["key"])

    assert KEY.decode() not in text
    assert KEY.hex() not in text
    assert claim.holds_for(KEY)
    assert not claim.holds_for(b"bob@example.org")


def test_equal_keys_have_other_hashes_in_each_certificate() -> None:
    assert KeyClaim.of(KEY).hash != KeyClaim.of(KEY).hash


def change(place: str, value: object) -> Callable[[Json], None]:
    return lambda signed: signed["certificate"].update({place: value})


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(change("state", "complete"), id="state"),
        pytest.param(change("partitions", []), id="partitions"),
        pytest.param(lambda signed: signed["certificate"].pop("topic"), id="topic"),
        pytest.param(lambda signed: signed.update(signature="00" * 64), id="signature"),
        pytest.param(lambda signed: signed.update(signature="no digits"), id="no signature"),
        pytest.param(lambda signed: signed.update(public_key=7), id="key"),
    ],
)
def test_what_was_changed_is_refused(harm: Callable[[Json], None], signed: Json) -> None:
    changed = copy.deepcopy(signed)
    harm(changed)

    with pytest.raises(BadCertificate, match="signature does not hold"):
        checked(changed)


@pytest.mark.parametrize("value", [None, [], {}, {"certificate": {"kind": "another"}}])
def test_what_is_no_certificate_is_refused(value: object) -> None:
    with pytest.raises(BadCertificate):
        checked(value)


def test_a_signed_text_that_lacks_what_a_verification_needs_is_refused(tmp_path: Path) -> None:
    key = SigningKey.load_or_create(LocalFileSystem(), str(tmp_path))
    body = {"kind": "kompakt erasure certificate", "version": 1}
    signed = {
        "certificate": body,
        "public_key": key.public_key.hex(),
        "signature": key.sign(canonical(body)).hex(),
    }

    with pytest.raises(BadCertificate, match="incomplete"):
        checked(signed)


def test_an_erasure_is_the_same_after_the_store(signed: Json) -> None:
    for erasure in (ERASURE, replace(ERASURE, certificate=signed).moved_to(ErasureState.ENDED, 8)):
        text = erasure.to_store()

        assert Erasure.from_store(erasure.store_key, text) == erasure
        assert KEY.decode() not in text
        assert KEY.hex() not in text
