"""Validates the tokens of clients, with the keys of each listener's issuer."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from server.config.listeners.sasl_listeners import OAuthRules
from server.runtime.clock import Clock
from server.runtime.executors import Executors
from server.security.sasl.exchange import TokenFacts
from server.security.sasl.issuer_keys import IssuerKeys
from server.security.sasl.token_claims import TokenRefused, UnknownKey, validated
from storage.threads import loop_thread

_log = logging.getLogger("server.security.sasl.tokens")


@loop_thread
class Tokens:
    """Validates tokens. Imported only if a listener accepts OAUTHBEARER."""

    __slots__ = ("_clock", "_executors", "_keys")

    def __init__(self, rules: Iterable[OAuthRules], executors: Executors, clock: Clock) -> None:
        self._executors = executors
        self._clock = clock
        self._keys = {each: IssuerKeys(each, executors.issuers) for each in rules}

    def start(self) -> None:
        """Fetch the keys of every issuer, and keep them fresh. A failure is logged and retried."""
        for each in self._keys.values():
            each.start()

    async def stop(self) -> None:
        """Stop fetching keys."""
        for each in self._keys.values():
            await each.stop()

    async def facts(self, token: str, rules: OAuthRules) -> TokenFacts | None:
        """Returns the facts in a token; None if it is not valid."""
        issuer = self._keys[rules]
        await issuer.first_fetched()
        now_s = self._clock.now_ms() / 1000
        try:
            return await self._executors.authentication.run(
                validated, token, issuer.keys, rules, now_s=now_s
            )
        except UnknownKey as error:
            issuer.key_missed()
            _log.debug("refused a token: %s", error)
        except TokenRefused as error:
            _log.debug("refused a token: %s", error)
        return None
