"""Decides whether a client of the HTTP endpoint may do what it requests.

    request -> route -> rule -> login -> ACLs -> handler -> audit log
                         |        |        `- 403     a sentence that names what is missing
                         |        `---------- 401     after connection.failed.authentication.delay.ms
                         `------------------- open    /health, and /metrics if http.metrics.public

An endpoint without logins and without client certificates serves every client that reaches it, as it may
only listen where that is intended (`server/config/listeners/open_listeners.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from protocol.wire.value_class import value_class
from server.admin.http_logins import Credentials, HttpLogins, LoginRefused, certificate_of
from server.admin.http_rules import HttpRule, Permission, rule_of
from server.admin.refusals import UNKNOWN_TOPIC
from server.config.listeners.addresses import Address
from server.security.acls import CLUSTER_NAME, ResourceType
from server.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from server.security.audit_log import AuditLog
    from server.security.authorizer import Authorizer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@value_class
class HttpPeer:
    """The client of a request, for the audit log."""

    principal: Principal
    client_host: str
    endpoint: Address


class HttpAccess:
    """Checks every request whose route is known; lives on the event loop."""

    def __init__(
        self,
        address: Address,
        audit: AuditLog,
        *,
        logins: Callable[[], HttpLogins | None],
        authorizer: Callable[[], Authorizer | None],
        authenticates: bool,
        has_public_metrics: bool,
    ) -> None:
        """
        Args:
            address: of the endpoint.
            logins: returns None while the broker starts and cannot log clients in yet.
            authorizer: returns None if everything is allowed to every user.
            authenticates: whether the endpoint learns who its clients are.
        """
        self._address = address
        self._audit = audit
        self._logins = logins
        self._authorizer = authorizer
        self._authenticates = authenticates
        self._has_public_metrics = has_public_metrics

    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request: by its handler if it is allowed, else with the refusal."""
        resource = request.match_info.route.resource
        if resource is None:
            return await handler(request)  # 404 or 405
        rule = rule_of(request.method, resource.canonical)
        if rule is None:
            return _refusal(
                403, f"nobody may {request.method} {resource.canonical}: it has no rule"
            )
        admitted = await self._admit(request, rule)
        if isinstance(admitted, web.Response):
            return admitted
        answer = await handler(request)
        if rule.is_audited:
            self._audit.changed(
                self._peer(request, admitted),
                api=_name_of(request),
                resource=_resource_of(request),
                result="NONE" if answer.status < 400 else f"HTTP {answer.status}",
            )
        return answer

    async def _admit(self, request: web.Request, rule: HttpRule) -> Principal | web.Response:
        """Returns who sends an allowed request, or the refusal."""
        is_open = not rule.permissions or (rule.is_metrics and self._has_public_metrics)
        if is_open or not self._authenticates:
            return ANONYMOUS
        logins = self._logins()
        if logins is None:
            return _refusal(503, "the broker is starting and cannot log you in yet")
        shown = Credentials(
            authorization=request.headers.get("Authorization"),
            certificate=certificate_of(request.get_extra_info("ssl_object")),
        )
        principal = await logins.principal_of(shown)
        if isinstance(principal, LoginRefused):
            return await self._refuse_login(request, logins, principal)
        return self._denial(request, rule, principal) or principal

    async def _refuse_login(
        self, request: web.Request, logins: HttpLogins, refused: LoginRefused
    ) -> web.Response:
        if refused.scheme:
            self._audit.refused(
                self._peer(request, ANONYMOUS),
                mechanism=refused.scheme,
                user=refused.user,
                reason=refused.reason,
            )
            await asyncio.sleep(logins.failure_delay_s)
        answer = _refusal(401, refused.reason)
        for challenge in logins.challenges:
            answer.headers.add("WWW-Authenticate", challenge)
        return answer

    def _denial(
        self, request: web.Request, rule: HttpRule, principal: Principal
    ) -> web.Response | None:
        """Returns the refusal of the first permission that is missing; None if there is none."""
        authorizer = self._authorizer()
        if authorizer is None:
            return None
        peer = self._peer(request, principal)
        for permission in rule.permissions:
            name = _name_for(permission, request)
            decision = authorizer.decide(
                peer.principal, peer.client_host, permission.operation, permission.kind, name
            )
            if not decision.is_allowed:
                resource = f"{permission.kind.title}:{name}"
                self._audit.denied(
                    peer,
                    None,
                    api=_name_of(request),
                    operation=permission.operation.name,
                    resource=resource,
                    rule=str(decision),
                )
                if rule.hides_topic:
                    return _refusal(404, f"there is no topic {name}", code=UNKNOWN_TOPIC)
                return _refusal(
                    403,
                    f"{peer.principal} may not {permission.operation.title} {resource}: an ACL must"
                    " allow it (kompakt acls add)",
                )
        return None

    def _peer(self, request: web.Request, principal: Principal) -> HttpPeer:
        return HttpPeer(principal, request.remote or "", self._address)


def _name_for(permission: Permission, request: web.Request) -> str:
    if permission.kind is ResourceType.CLUSTER:
        return CLUSTER_NAME
    return request.match_info["topic"]


def _name_of(request: web.Request) -> str:
    resource = request.match_info.route.resource
    assert resource is not None
    return f"{request.method} {resource.canonical}"


def _resource_of(request: web.Request) -> str:
    """Returns what the request is about, and which job, lease, link or erasure of it."""
    names = request.match_info
    others = "".join(
        f" {name} {value}" for name, value in names.items() if name not in ("topic", "partition")
    )
    if "topic" not in names:
        return f"{ResourceType.CLUSTER.title}:{CLUSTER_NAME}{others}"
    partition = f"-{names['partition']}" if "partition" in names else ""
    return f"{ResourceType.TOPIC.title}:{names['topic']}{partition}{others}"


def _refusal(status: int, message: str, *, code: str | None = None) -> web.Response:
    body = {"error": message} if code is None else {"error": message, "code": code}
    return web.json_response(body, status=status)
