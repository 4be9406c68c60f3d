"""AlterUserScramCredentials: changes over a real socket; `test_scram_changes.py` has every check."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.wire.error_codes import ErrorCode
from server.security.scram_credentials import ScramMechanism
from tests.harness.sasl_login import upsertion
from tests.harness.served_broker import ServedBroker, serving_broker

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


async def alter(
    served: ServedBroker,
    *upsertions: ScramCredentialUpsertion,
    delete: tuple[tuple[str, int], ...] = (),
) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(ScramCredentialDeletion(name=n, mechanism=m) for n, m in delete),
        upsertions=upsertions,
    )
    response = await served.call(request, 0, AlterUserScramCredentialsResponse)
    return {each.user: (each.error_code, each.error_message) for each in response.results}


def all_bytes_in(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


async def test_each_user_gets_its_own_answer(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        assert await alter(served, upsertion("bob", mechanism=SHA_512)) == {
            "bob": (ErrorCode.NONE, None)
        }
        answers = await alter(
            served,
            upsertion("alice"),
            upsertion("carol", iterations=100),
            upsertion("dave"),
            upsertion("dave", mechanism=SHA_512),
            delete=(("bob", SHA_512), ("eve", SHA_256)),
        )
        assert answers == {
            "alice": (ErrorCode.NONE, None),
            "bob": (ErrorCode.NONE, None),
            "carol": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
            "dave": (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            ),
            "eve": (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            ),
        }
        assert served.broker.scram.credentials() == (("alice", SHA_256),)


async def test_credentials_survive_a_restart(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await alter(served, upsertion("alice"), upsertion("bob"))
        await alter(served, delete=(("bob", SHA_256),))
    async with serving_broker(tmp_path) as served:
        assert served.broker.scram.credentials() == (("alice", SHA_256),)


async def test_no_secret_is_logged_or_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = upsertion("alice", "correct horse")
    with caplog.at_level(logging.DEBUG):
        async with serving_broker(tmp_path) as served:
            await alter(served, wanted)
            verifier = served.broker.scram.credentials_of("alice")[SHA_256]
    salted = bytes(wanted.salted_password)  # type: ignore[arg-type]
    stored = await asyncio.to_thread(all_bytes_in, tmp_path)
    assert b"correct horse" not in stored
    assert salted not in stored
    for secret in (salted, verifier.stored_key, verifier.server_key):
        assert repr(secret) not in caplog.text
        assert secret.hex() not in caplog.text
