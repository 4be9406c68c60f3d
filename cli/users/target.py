"""Where `kompakt users` changes users: a running broker, or the data directory of a stopped one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from cli.base.broker_client import BrokerClient, connected
from cli.base.command_end import EXIT_FAILED, CommandFailed
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import copied
from server.metadata.embedded_store import EmbeddedMetadataStore
from server.runtime.turns import Pace, Turns
from server.security.scram_changes import ScramChanges, ScramRefusal
from server.security.scram_credentials import ScramMechanism
from server.security.scram_store import ScramStore
from storage.files.errors import StorageError
from storage.files.local_files import LocalFileSystem
from storage.files.paths import LOCK, METADATA, join
from storage.log.directory_start import any_topic, make_durably

Users = Mapping[str, Mapping[ScramMechanism, int]]
"""The iterations of each credential, by user and mechanism."""
Change = ScramCredentialDeletion | ScramCredentialUpsertion


class Target(Protocol):
    """The users of one broker."""

    async def users(self) -> Users:
        """Returns all users."""

    async def change(self, change: Change) -> None:
        """Change one credential. Raises CommandFailed with the reason of a refusal."""


Open = Callable[[], AbstractAsyncContextManager[Target]]
"""Opens a target for a while."""


def target_of(bootstrap: str, data: Path | None) -> Open:
    """Returns the target that the options name."""
    if data is None:
        return lambda: _running(bootstrap)
    return lambda: _stopped(data)


@asynccontextmanager
async def _running(bootstrap: str) -> AsyncIterator[Target]:
    async with connected(bootstrap) as client:
        yield _RunningBroker(client)


class _RunningBroker:
    def __init__(self, client: BrokerClient) -> None:
        self._client = client

    async def users(self) -> Users:
        request = DescribeUserScramCredentialsRequest(users=None)
        answer = await self._client.call(request, DescribeUserScramCredentialsResponse)
        _check(answer.error_code, answer.error_message)
        return {
            each.user: {
                ScramMechanism(info.mechanism): info.iterations for info in each.credential_infos
            }
            for each in answer.results
        }

    async def change(self, change: Change) -> None:
        if isinstance(change, ScramCredentialDeletion):
            request = AlterUserScramCredentialsRequest(deletions=(change,), upsertions=())
        else:
            request = AlterUserScramCredentialsRequest(deletions=(), upsertions=(change,))
        answer = await self._client.call(request, AlterUserScramCredentialsResponse)
        (result,) = answer.results
        _check(result.error_code, result.error_message)


@asynccontextmanager
async def _stopped(data: Path) -> AsyncIterator[Target]:
    """Yields the users in a data directory, which no broker may use meanwhile."""
    files, path = LocalFileSystem(), str(data)
    try:
        make_durably(files, path)
        lock = files.lock(join(path, LOCK))
        try:
            directory = join(path, METADATA)
            metadata = await EmbeddedMetadataStore.open(
                files, directory, any_topic=lambda: any_topic(files, path)
            )
            try:
                store = ScramStore(metadata)
                await store.open()
                yield _StoppedBroker(store)
            finally:
                await metadata.close()
        finally:
            lock.release()
    except StorageError as error:
        raise CommandFailed(EXIT_FAILED, str(error)) from error


class _StoppedBroker:
    def __init__(self, store: ScramStore) -> None:
        self._store = store

    async def users(self) -> Users:
        names = sorted({user for user, _ in self._store.credentials()})
        return {
            name: {
                mechanism: verifier.iterations
                for mechanism, verifier in self._store.credentials_of(name).items()
            }
            for name in names
        }

    async def change(self, change: Change) -> None:
        checked = ScramChanges(exists=self._store.has)
        if isinstance(change, ScramCredentialDeletion):
            checked.delete(change.name, change.mechanism)
        else:
            checked.set(
                change.name,
                change.mechanism,
                iterations=change.iterations,
                salt=copied(change.salt),
                salted_password=copied(change.salted_password),
            )
        late = await self._store.change(checked.accepted, Pace(Turns()))
        _check_refused([*checked.refused.values(), *late.values()])


def _check_refused(refused: Sequence[ScramRefusal]) -> None:
    for each in refused:
        _check(each.error_code, each.message)


def _check(error_code: int, message: str | None) -> None:
    if error_code:
        raise CommandFailed(EXIT_FAILED, message or ErrorCode.from_wire(error_code).message)
