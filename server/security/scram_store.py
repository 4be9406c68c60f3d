"""The SCRAM credentials of all users, in the metadata store.

    /scram/<mechanism>/<user>    a verifier (`server/security/scram_credentials.py`)
    /scram_decoys                a random key, in base64, for the salts of unknown users

An unknown user gets a verifier too, so that its login takes the same steps as one with a wrong password:
its salt is a keyed hash of its name, so it stays the same, also after a restart.

Source: KIP-554; Apache Kafka, ScramControlManager.java.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import secrets
from collections import Counter
from collections.abc import Mapping

from server.metadata.store import Delete, MetadataStore, Put, write_unless_disk_full
from server.runtime.turns import Pace
from server.security.scram_changes import ScramChange, ScramDeletion, ScramRefusal, UserMechanism
from server.security.scram_credentials import ITERATIONS_MIN, ScramMechanism, ScramVerifier
from storage.threads import loop_thread

_log = logging.getLogger("server.security.scram_store")

PREFIX = "/scram/"
DECOY_KEY = "/scram_decoys"
DECOY_KEY_BYTES = 32
SALT_BYTES = 32
CHANGES_MAX = 100
"""The most credentials that one transaction of the metadata store changes."""

Shape = tuple[int, int]
"""Iterations, and the size of the salt."""


@loop_thread
class ScramStore:
    """Sole owner of the SCRAM credentials."""

    __slots__ = ("_decoy_key", "_lock", "_shapes", "_store", "_verifiers")

    def __init__(self, store: MetadataStore) -> None:
        # Constant after construction
        self._store = store
        self._lock = asyncio.Lock()
        # State
        self._verifiers: dict[UserMechanism, ScramVerifier] = {}
        self._shapes: dict[ScramMechanism, Counter[Shape]] = {
            each: Counter() for each in ScramMechanism
        }
        self._decoy_key = secrets.token_bytes(DECOY_KEY_BYTES)

    async def open(self, *, keeps_decoys: bool = False) -> None:
        """Read the credentials. One that this release cannot read is skipped with a warning.

        Args:
            keeps_decoys: whether the salts of unknown users have to stay the same after a restart.
        """
        for entry in (await self._store.range(PREFIX)).entries:
            mechanism, _, user = entry.key.removeprefix(PREFIX).partition("/")
            try:
                key = (user, ScramMechanism.of(mechanism))
                self._put(key, ScramVerifier.from_json(entry.value))
            except ValueError as error:
                _log.warning("ignored the %s credential of user %r: %s", mechanism, user, error)
        if keeps_decoys:
            await self._open_decoys()

    @property
    def count(self) -> int:
        """The number of credentials."""
        return len(self._verifiers)

    def credentials(self) -> tuple[UserMechanism, ...]:
        """Returns the user and the mechanism of each credential, in no order."""
        return tuple(self._verifiers)

    def credentials_of(self, user: str) -> Mapping[ScramMechanism, ScramVerifier]:
        """Returns a user's credentials by mechanism."""
        found = {each: self._verifiers.get((user, each)) for each in ScramMechanism}
        return {each: verifier for each, verifier in found.items() if verifier is not None}

    def has(self, key: UserMechanism) -> bool:
        """Returns whether a user has a credential for a mechanism."""
        return key in self._verifiers

    def verifier_or_decoy(self, mechanism: ScramMechanism, user: str) -> ScramVerifier:
        """Returns a user's verifier; for a user without one, a verifier that no password has.

        The decoy has the iterations and the size of the salt that most credentials have.
        """
        verifier = self._verifiers.get((user, mechanism))
        decoy = self._decoy(mechanism, user)
        return decoy if verifier is None else verifier

    async def change(
        self, changes: Mapping[UserMechanism, ScramChange], pace: Pace
    ) -> dict[str, ScramRefusal]:
        """Change credentials. They are durable and in effect when this returns.

        Deletions of credentials that another request has just deleted are refused.

        Args:
            changes: a user occurs once; `scram_changes.py` checks that.

        Returns:
            The refused users.

        Raises:
            StorageError: the store failed; earlier changes of the request may be in effect.
        """
        refused: dict[str, ScramRefusal] = {}
        async with self._lock:
            rest: dict[UserMechanism, ScramChange] = {}
            async for key, change in pace.paced(changes.items()):
                if isinstance(change, ScramDeletion) and key not in self._verifiers:
                    refused[key[0]] = ScramRefusal.missing()
                    continue
                rest[key] = change
                if len(rest) == CHANGES_MAX:
                    await self._write(rest)
                    rest = {}
            if rest:
                await self._write(rest)
        return refused

    async def _write(self, changes: Mapping[UserMechanism, ScramChange]) -> None:
        operations = [
            Delete(key=_key(key))
            if isinstance(change, ScramDeletion)
            else Put(key=_key(key), value=change.to_json())
            for key, change in changes.items()
        ]
        await self._store.txn((), operations)
        for key, change in changes.items():
            if isinstance(change, ScramDeletion):
                self._remove(key)
            else:
                self._put(key, change)
            what = "deleted" if isinstance(change, ScramDeletion) else "set"
            _log.info("user %r: %s credential %s", key[0], key[1].sasl_name, what)

    async def _open_decoys(self) -> None:
        entry = await self._store.get(DECOY_KEY)
        if entry is not None:
            self._decoy_key = base64.b64decode(entry.value)
            return
        text = base64.b64encode(self._decoy_key).decode()
        await write_unless_disk_full(self._store, [Put(key=DECOY_KEY, value=text)])

    def _decoy(self, mechanism: ScramMechanism, user: str) -> ScramVerifier:
        common = self._shapes[mechanism].most_common(1)
        iterations, salt_bytes = common[0][0] if common else (ITERATIONS_MIN, SALT_BYTES)
        name = f"{mechanism.sasl_name}/{user}".encode("utf-8", "surrogatepass")
        size = mechanism.digest_bytes
        drawn = b"".join(
            hmac.digest(self._decoy_key, bytes([number]) + name, "sha512")
            for number in range(2 + salt_bytes // 64)
        )
        return ScramVerifier(
            salt=drawn[64 : 64 + salt_bytes],
            iterations=iterations,
            stored_key=drawn[:size],
            server_key=drawn[:size],
        )

    def _put(self, key: UserMechanism, verifier: ScramVerifier) -> None:
        if key in self._verifiers:
            self._remove(key)
        self._verifiers[key] = verifier
        self._shapes[key[1]][_shape(verifier)] += 1

    def _remove(self, key: UserMechanism) -> None:
        verifier = self._verifiers.pop(key)
        shapes = self._shapes[key[1]]
        shapes[_shape(verifier)] -= 1
        if not shapes[_shape(verifier)]:
            del shapes[_shape(verifier)]


def _shape(verifier: ScramVerifier) -> Shape:
    return verifier.iterations, len(verifier.salt)


def _key(key: UserMechanism) -> str:
    user, mechanism = key
    return f"{PREFIX}{mechanism.sasl_name}/{user}"
