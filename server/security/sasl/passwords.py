"""Checks passwords for PLAIN: against those of the configuration, then against SCRAM verifiers.

    declared user      compare with the declared password
    other user         derive the SCRAM keys, in a thread

Where there are SCRAM users, every wrong password costs one derivation, also that of a declared or of an
unknown user, so that the time does not show who exists. A password that was right is remembered as a
keyed hash; the next login of that user costs no derivation.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping

from server.runtime.executors import Executor
from server.security.scram_credentials import ScramMechanism, ScramVerifier, is_password_of
from server.security.scram_store import ScramStore
from storage.threads import loop_thread

REMEMBERED_MAX = 1000
"""How many right passwords are remembered; beyond that, the one used longest ago is forgotten."""
PASSWORD_BYTES_MAX = 4096
"""A longer password is wrong without a derivation."""


@loop_thread
class Passwords:
    """Checks passwords. One instance per broker."""

    __slots__ = ("_executor", "_key", "_remembered", "_scram")

    def __init__(self, scram: ScramStore, executor: Executor) -> None:
        # Constant after construction
        self._scram = scram
        self._executor = executor
        self._key = secrets.token_bytes(32)
        # State: keyed hashes of right passwords, the one used longest ago first.
        self._remembered: OrderedDict[bytes, None] = OrderedDict()

    async def is_right(self, user: str, password: str, declared: Mapping[str, str]) -> bool:
        """Returns whether a password is the user's.

        Args:
            declared: the passwords that the configuration declares, by user. They come first.
        """
        if len(password) > PASSWORD_BYTES_MAX:
            return False
        is_declared = _is_equal(password, declared.get(user, ""))
        if user in declared and is_declared:
            return True
        if not self._scram.count:
            return False
        is_scram = await self._is_scram_password(user, password)
        return is_scram and user not in declared

    async def _is_scram_password(self, user: str, password: str) -> bool:
        mechanism = self._mechanism_of(user)
        verifier = self._scram.verifier_or_decoy(mechanism, user)
        remembered = self._hash(user, password, verifier)
        if remembered in self._remembered:
            self._remembered.move_to_end(remembered)
            return True
        is_right = await self._executor.run(is_password_of, mechanism, password, verifier)
        if is_right:
            self._remember(remembered)
        return is_right

    def _mechanism_of(self, user: str) -> ScramMechanism:
        """Returns a mechanism for which the user has a verifier; for an unknown user, any."""
        return next(iter(self._scram.credentials_of(user)), ScramMechanism.SHA_256)

    def _remember(self, remembered: bytes) -> None:
        self._remembered[remembered] = None
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _hash(self, user: str, password: str, verifier: ScramVerifier) -> bytes:
        """Returns the keyed hash of a login. It depends on the verifier, so a changed one forgets it."""
        parts = (user.encode(), password.encode(), verifier.stored_key)
        sized = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._key, sized, "sha256")


def _is_equal(one: str, other: str) -> bool:
    """Compare in a time that does not depend on the contents or their lengths."""
    first, second = (hashlib.sha256(each.encode()).digest() for each in (one, other))
    return hmac.compare_digest(first, second)
