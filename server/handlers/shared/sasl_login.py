"""Carries out a login for SaslHandshake and SaslAuthenticate: principal, counts, log, delay, close."""

from __future__ import annotations

import asyncio

from server.request_context import RequestContext
from server.security.sasl.exchange import Failure
from server.security.sasl.session import Login, SaslSession

SHOWN_CHARACTERS_MAX = 64


async def take_token(
    session: SaslSession, token: bytes, context: RequestContext
) -> tuple[bytes, Login | None] | Failure:
    """Take a client's next token, as `Logins.step` does, with everything that follows from it.

    After a failure the connection closes once the request is answered; the delay is already over.
    """
    exchange = session.exchange
    assert exchange is not None
    answer = await context.broker.logins.step(session, token)
    if isinstance(answer, Failure):
        await refuse_login(context, answer.message or "", detail=exchange.claimed_user)
    elif answer[1] is not None:
        _complete(answer[1], context)
    return answer


async def answer_raw_token(token: bytes, context: RequestContext) -> bytes | None:
    """Returns the answer to a token without a request around it; None closes the connection."""
    session = context.connection.sasl
    assert session is not None
    answer = await take_token(session, token, context)
    return None if isinstance(answer, Failure) else answer[0]


async def refuse_login(context: RequestContext, why: str, *, detail: str) -> None:
    """Log and count a refused login, wait, and let the connection close after the answer.

    Args:
        detail: the user that the client claims to be, or the mechanism that it asked for. The client
            chooses it, so the log shows its beginning only, escaped.
    """
    connection, broker = context.connection, context.broker
    session = connection.sasl
    assert session is not None
    mechanism = session.mechanism
    broker.probe.login_refused(connection.endpoint.name, mechanism, is_again=session.is_again)
    shown = f": {mechanism} {detail[:SHOWN_CHARACTERS_MAX]!r}".replace("  ", " ")
    broker.warnings.say(connection, f"login refused, {why}", shown)
    broker.audit.refused(connection, mechanism=mechanism, user=detail, reason=why)
    await asyncio.sleep(broker.logins.failure_delay_s)
    connection.finish()


def _complete(login: Login, context: RequestContext) -> None:
    context.connection.authenticate(login.principal)
    context.broker.probe.login_completed(
        context.connection.endpoint.name, login.mechanism, is_again=login.is_again
    )
