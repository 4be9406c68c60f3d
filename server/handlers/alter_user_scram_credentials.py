"""AlterUserScramCredentials (key 51), v0.

Behaviour: deletes and sets SCRAM credentials. A user may occur once in a request. The other users of a
request are changed even if some are refused; the changes are durable when the answer is sent.
Source: KIP-554; Apache Kafka, ScramControlManager.java `alterCredentials`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from protocol.wire.schema import copied
from server.request_context import RequestContext
from server.security.scram_changes import ScramChanges, ScramRefusal


async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Check all changes, then carry out those that are accepted."""
    changes = await _checked(request, context)
    late = await context.broker.scram.change(changes.accepted, context.pace)
    changed = (user for user, _ in changes.accepted if user not in late)
    results = [_done(user) async for user in context.pace.paced(changed)]
    results += [each async for each in context.pace.paced(_refusals(changes.refused, late))]
    return AlterUserScramCredentialsResponse(results=tuple(results))


def refuse(
    request: AlterUserScramCredentialsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> AlterUserScramCredentialsResponse:
    def refused(
        each: ScramCredentialDeletion | ScramCredentialUpsertion,
    ) -> AlterUserScramCredentialsResult:
        return AlterUserScramCredentialsResult(
            user=each.name, error_code=error_code, error_message=message
        )

    changes: tuple[ScramCredentialDeletion | ScramCredentialUpsertion, ...]
    changes = (*request.deletions, *request.upsertions)
    return AlterUserScramCredentialsResponse(results=lazy_array(refused, changes))


async def _checked(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> ScramChanges:
    changes = ScramChanges(exists=context.broker.scram.has)
    async for deletion in context.pace.paced(request.deletions):
        changes.delete(deletion.name, deletion.mechanism)
    async for wanted in context.pace.paced(request.upsertions):
        changes.set(
            wanted.name,
            wanted.mechanism,
            iterations=wanted.iterations,
            salt=copied(wanted.salt),
            salted_password=copied(wanted.salted_password),
        )
    return changes


def _refusals(*refused: Mapping[str, ScramRefusal]) -> Iterable[AlterUserScramCredentialsResult]:
    for by_user in refused:
        for user, refusal in by_user.items():
            yield AlterUserScramCredentialsResult(
                user=user, error_code=refusal.error_code, error_message=refusal.message
            )


def _done(user: str) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=user, error_code=ErrorCode.NONE, error_message=None)
