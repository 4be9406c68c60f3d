"""Carries out logins: begins exchanges, answers their questions, completes sessions."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from server.config.listeners.sasl_listeners import OAUTHBEARER, PLAIN, SaslListener
from server.runtime.clock import Clock
from server.runtime.executors import Executors
from server.security.sasl.exchange import (
    Challenge,
    Exchange,
    Failure,
    Outcome,
    PasswordQuestion,
    TokenFacts,
    TokenQuestion,
)
from server.security.sasl.oauthbearer import OAuthExchange
from server.security.sasl.passwords import Passwords
from server.security.sasl.plain import PlainExchange
from server.security.sasl.scram import ScramExchange
from server.security.sasl.session import Login, SaslSession
from server.security.scram_credentials import ScramMechanism
from server.security.scram_store import ScramStore
from storage.threads import loop_thread

if TYPE_CHECKING:
    from server.security.sasl.tokens import Tokens

NONCE_BYTES = 24
LOGIN_SECONDS_MAX = 60.0
"""A client that has not completed its login after this time is disconnected."""


@loop_thread
class Logins:
    """The logins of all SASL listeners. One instance per broker."""

    __slots__ = ("_clock", "_passwords", "_scram", "_tokens", "failure_delay_s", "listeners")

    def __init__(
        self,
        listeners: Mapping[str, SaslListener],
        scram: ScramStore,
        executors: Executors,
        clock: Clock,
        *,
        failure_delay_ms: int,
    ) -> None:
        """
        Args:
            listeners: the SASL listeners by name, and the HTTP endpoint if it has logins.
            executors: its threads derive keys, and verify and fetch those of tokens.
        """
        # Constant after construction
        self.listeners = listeners
        self.failure_delay_s = failure_delay_ms / 1000
        """How long the answer to a refused login is held back."""
        self._scram = scram
        self._passwords = Passwords(scram, executors.authentication)
        self._clock = clock
        self._tokens: Tokens | None = None
        rules = {each.oauth for each in listeners.values() if each.oauth is not None}
        if rules:
            from server.security.sasl.tokens import Tokens

            self._tokens = Tokens(rules, executors, clock)

    def start(self) -> None:
        """Begin to fetch the keys of token issuers."""
        if self._tokens is not None:
            self._tokens.start()

    async def stop(self) -> None:
        """Stop fetching keys."""
        if self._tokens is not None:
            await self._tokens.stop()

    def session(self, listener: str) -> SaslSession | None:
        """Returns the login of a new connection; None if its listener has no SASL."""
        found = self.listeners.get(listener)
        return None if found is None else SaslSession(found, now_s=self._clock.monotonic())

    def check_request(self, session: SaslSession, frame: bytearray) -> None:
        """Check that a request is allowed. Raises UnexpectedRequest or SessionExpired."""
        session.check_request(frame, self._clock.monotonic())

    def may_begin(self, session: SaslSession) -> bool:
        """Returns whether a SaslHandshake begins a login now."""
        return session.may_begin(self._clock.monotonic())

    def is_overdue(self, session: SaslSession) -> bool:
        """Returns whether a login has taken too long."""
        return session.is_unfinished_since(self._clock.monotonic() - LOGIN_SECONDS_MAX)

    def begin(self, session: SaslSession, mechanism: str, *, is_raw: bool) -> bool:
        """Begin a login. Returns False, and changes nothing, if the mechanism is not enabled."""
        if mechanism not in session.listener.mechanisms:
            return False
        exchange = self._exchange(mechanism)
        session.begin(mechanism, exchange, now_s=self._clock.monotonic(), is_raw=is_raw)
        return True

    async def step(
        self, session: SaslSession, token: bytes
    ) -> tuple[bytes, Login | None] | Failure:
        """Take a client's next token; the session must be waiting for it.

        Returns:
            The token for the client, and the login if it is complete; or why it is refused: then
            the session has failed.
        """
        assert session.exchange is not None
        outcome = await self._outcome(session, session.exchange, token)
        if isinstance(outcome, Challenge):
            return outcome.token, None
        if not isinstance(outcome, Failure):
            now_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
            login = session.complete(outcome, now_s=now_s, now_ms=now_ms)
            if isinstance(login, Login):
                return outcome.token, login
            outcome = login
        text = session.failure_text(outcome)
        session.fail()
        return Failure(text)

    async def _outcome(self, session: SaslSession, exchange: Exchange, token: bytes) -> Outcome:
        step = exchange.step(token)
        if isinstance(step, TokenQuestion):
            rules = session.listener.oauth
            assert rules is not None
            assert self._tokens is not None, "a listener with OAUTHBEARER has rules for tokens"
            return step.then(await self._tokens.facts(step.token, rules))
        if isinstance(step, PasswordQuestion):
            declared = session.listener.plain_users
            return step.then(await self._passwords.is_right(step.user, step.password, declared))
        return step

    async def is_password_right(self, accepted: SaslListener, user: str, password: str) -> bool:
        """Returns whether a password is the user's, outside an exchange: for HTTP."""
        return await self._passwords.is_right(user, password, accepted.plain_users)

    async def facts_of(self, accepted: SaslListener, token: str) -> TokenFacts | None:
        """Returns the facts in a token, outside an exchange; None if it is not valid."""
        assert accepted.oauth is not None
        assert self._tokens is not None, "a listener with OAUTHBEARER has rules for tokens"
        return await self._tokens.facts(token, accepted.oauth)

    def _exchange(self, mechanism: str) -> Exchange:
        if mechanism == PLAIN:
            return PlainExchange()
        if mechanism == OAUTHBEARER:
            return OAuthExchange()
        return ScramExchange(
            ScramMechanism.of(mechanism),
            self._scram.verifier_or_decoy,
            nonce=secrets.token_urlsafe(NONCE_BYTES),
        )
