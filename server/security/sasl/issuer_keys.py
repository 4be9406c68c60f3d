"""The keys of a token issuer: fetched from a file or a URL, and again when they may have changed.

    start            fetch at once, logins wait for that; after a failure again, with growing pauses
    refresh          every sasl.oauthbearer.jwks.endpoint.refresh.ms
    unknown key      at once, but not more often than every UNKNOWN_KEY_SECONDS

After a failed fetch the last keys stay.

Source: Apache Kafka, RefreshingHttpsJwks.java, JwksFileVerificationKeyResolver.java.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.error
import urllib.request

from joserfc.jwk import KeySet

from server.config.listeners.sasl_listeners import OAuthRules
from server.runtime.executors import Executor
from server.runtime.tasks import spawn
from server.security.sasl.token_claims import parse_keys
from storage.threads import loop_thread

_log = logging.getLogger("server.security.sasl.issuer_keys")

FETCH_SECONDS_MAX = 10.0
KEYS_BYTES_MAX = 1 << 20
UNKNOWN_KEY_SECONDS = 60.0
"""A client could name a key that does not exist in each login; only one in this time starts a fetch."""


def fetch_keys(url: str) -> KeySet:
    """Fetch keys from a `file:`, `http:` or `https:` URL. Blocks.

    Raises:
        OSError, ValueError: they cannot be read, or are not a key set.
    """
    with urllib.request.urlopen(url, timeout=FETCH_SECONDS_MAX) as answer:  # noqa: S310 - checked
        text = answer.read(KEYS_BYTES_MAX + 1)
    if len(text) > KEYS_BYTES_MAX:
        raise ValueError(f"more than {KEYS_BYTES_MAX} bytes")
    return parse_keys(text)


@loop_thread
class IssuerKeys:
    """The keys of one issuer."""

    __slots__ = ("_executor", "_first", "_hurry", "_last_fetch_s", "_rules", "_task", "keys")

    def __init__(self, rules: OAuthRules, executor: Executor) -> None:
        # Constant after construction
        self._rules = rules
        self._executor = executor
        # State
        self.keys = KeySet([])
        """The last keys; empty until the first fetch succeeds."""
        self._first = asyncio.Event()
        self._hurry = asyncio.Event()
        self._last_fetch_s = -UNKNOWN_KEY_SECONDS
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Fetch the keys in the background, and keep them fresh."""
        self._task = spawn(self._keep_fresh(), "keys of a token issuer")

    async def first_fetched(self) -> None:
        """Wait until the first fetch has ended, successfully or not."""
        await self._first.wait()

    async def stop(self) -> None:
        """Stop fetching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def key_missed(self) -> None:
        """Fetch soon, because a token names a key that is not among these."""
        if asyncio.get_running_loop().time() - self._last_fetch_s >= UNKNOWN_KEY_SECONDS:
            self._hurry.set()

    async def _keep_fresh(self) -> None:
        pause_ms = self._rules.retry_ms
        is_fetched = await self._fetch()
        self._first.set()
        while True:
            wait_ms = self._rules.refresh_ms if is_fetched else pause_ms
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._hurry.wait()
            self._hurry.clear()
            is_fetched = await self._fetch()
            pause_ms = (
                self._rules.retry_ms if is_fetched else min(2 * pause_ms, self._rules.retry_max_ms)
            )

    async def _fetch(self) -> bool:
        """Fetch the keys. Returns whether that succeeded."""
        self._last_fetch_s = asyncio.get_running_loop().time()
        try:
            self.keys = await self._executor.run(fetch_keys, self._rules.keys_url)
        except (OSError, ValueError) as error:
            _log.warning(
                "cannot read the keys of token issuer %s, clients with its tokens cannot log in"
                " with new keys: %s",
                self._rules.keys_url,
                error,
            )
            return False
        return True
