"""Who may send which HTTP request: every route, by nobody, a denied, an allowed and a super user.

The cases are generated from the table of rules, and the table is compared with the routes of a broker: a
route that is added without a rule fails.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server.admin.http_rules import CHANGES, HTTP_RULES, OPEN, HttpRule, Permission
from server.security.acls import CLUSTER_NAME, Operation, ResourceType
from server.security.audit_log import LOGGER
from tests.harness.authorized_broker import allow, authorizing_broker, set_acls
from tests.harness.served_broker import ServedBroker
from tests.harness.token_issuer import TokenIssuer

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_admin="admin-secret" user_alice="alice-secret" user_bob="bob-secret";'
)


def basic(name: str) -> dict[str, str]:
    """Returns the header with which a user of the tests logs in."""
    encoded = base64.b64encode(f"{name}:{name}-secret".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


ALICE, BOB, ADMIN = (basic(name) for name in ("alice", "bob", "admin"))
NAMES = {
    "topic": "orders",
    "partition": "0",
    "job": "7",
    "lease": "none",
    "link": "none",
    "erasure": "none",
    "snapshot": "none",
    "key": "none",
    "group": "none",
}
HIDDEN = {"error": "there is no topic orders", "code": "unknown_topic"}
ROUTES = pytest.mark.parametrize(("method", "path"), HTTP_RULES, ids=" ".join)


@dataclass
class Endpoint:
    """The HTTP endpoint of a broker with logins and an authorizer."""

    served: ServedBroker
    issuer: TokenIssuer
    session: aiohttp.ClientSession
    challenges: list[str] = field(default_factory=list)

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, str]:
        """Returns status and text of an answer; `path` may have the names of `NAMES` in it."""
        url = f"http://127.0.0.1:{self.served.broker.http_port}{path.format_map(NAMES)}"
        if path == CHANGES:
            url += "?follow=false"  # The stream would never end.
        async with self.session.request(method, url, **options) as response:
            self.challenges = response.headers.getall("WWW-Authenticate", [])
            return response.status, await response.text()

    async def grant(self, *permissions: Permission) -> None:
        """Allow alice these operations and nothing else."""
        named = {ResourceType.CLUSTER: CLUSTER_NAME, ResourceType.TOPIC: NAMES["topic"]}
        await set_acls(
            self.served,
            [
                allow(each.kind, named[each.kind], each.operation, "User:alice")
                for each in permissions
            ],
        )


@pytest.fixture(scope="module")
def issuer() -> TokenIssuer:
    """One for all tests here: each has to make a key."""
    return TokenIssuer()


@pytest.fixture
async def endpoint(tmp_path: Path, issuer: TokenIssuer) -> AsyncIterator[Endpoint]:
    keys = issuer.write(tmp_path / "keys.json")
    async with endpoint_of(
        tmp_path, issuer, http_authentication="basic,bearer", keys=keys
    ) as opened:
        yield opened


@asynccontextmanager
async def endpoint_of(
    folder: Path, issuer: TokenIssuer, *, keys: str, **properties: str
) -> AsyncIterator[Endpoint]:
    """Run a broker with the users of the tests."""
    broker = authorizing_broker(
        folder / "data",
        http_listener="127.0.0.1:0",
        listener_name_http_plain_sasl_jaas_config=JAAS,
        listener_name_http_oauthbearer_sasl_oauthbearer_jwks_endpoint_url=keys,
        connection_failed_authentication_delay_ms="0",
        log_cleaner_enable="true",
        log_cleaner_backoff_ms="3600000",
        log_cleaner_remote_enable="true",
        **properties,
    )
    async with broker as served, aiohttp.ClientSession() as session:
        await served.create("orders", 1, cleanup_policy="compact")
        yield Endpoint(served, issuer, session)


def rule_of(method: str, path: str) -> HttpRule:
    return HTTP_RULES[method, path]


async def test_every_route_has_a_rule_and_every_rule_a_route(endpoint: Endpoint) -> None:
    _, listed = await endpoint.ask("GET", "/")

    assert {tuple(line.split()) for line in listed.splitlines()} == set(HTTP_RULES)


@ROUTES
async def test_nobody_is_asked_to_log_in(endpoint: Endpoint, method: str, path: str) -> None:
    status, text = await endpoint.ask(method, path)

    if rule_of(method, path) is OPEN:
        assert status == 200
        return
    assert (status, json.loads(text)) == (401, {"error": "log in: send Authorization"})
    assert endpoint.challenges == [
        'Basic realm="kompakt", charset="UTF-8"',
        'Bearer realm="kompakt"',
    ]


@ROUTES
async def test_a_user_without_acls_is_denied(endpoint: Endpoint, method: str, path: str) -> None:
    status, text = await endpoint.ask(method, path, headers=BOB)

    rule = rule_of(method, path)
    if rule is OPEN:
        assert status == 200
        return
    if rule.hides_topic:
        assert (status, json.loads(text)) == (404, HIDDEN)
        return
    first = rule.permissions[0].operation.title
    assert status == 403
    assert f"User:bob may not {first} Cluster:kafka-cluster" in json.loads(text)["error"]


@ROUTES
async def test_each_permission_of_a_rule_is_needed_and_all_together_suffice(
    endpoint: Endpoint, method: str, path: str
) -> None:
    needed = rule_of(method, path).permissions
    for missing in needed:
        await endpoint.grant(*(each for each in needed if each != missing))
        status, text = await endpoint.ask(method, path, headers=ALICE)
        if rule_of(method, path).hides_topic:
            assert (status, json.loads(text)) == (404, HIDDEN)
        else:
            assert (status, missing.operation.title in text) == (403, True)

    await endpoint.grant(*needed)
    status, text = await endpoint.ask(method, path, headers=ALICE)
    assert status not in (401, 403, 500), text


@ROUTES
async def test_a_super_user_may_do_everything(endpoint: Endpoint, method: str, path: str) -> None:
    status, text = await endpoint.ask(method, path, headers=ADMIN)

    assert status not in (401, 403, 500), text


async def test_a_denied_request_changes_nothing(endpoint: Endpoint) -> None:
    _, text = await endpoint.ask("GET", "/v1/compaction", headers=ADMIN)
    before = json.loads(text)["paused"]

    await endpoint.ask("POST", "/v1/compaction/pause", headers=BOB)

    _, text = await endpoint.ask("GET", "/v1/compaction", headers=ADMIN)
    assert json.loads(text)["paused"] == before


@pytest.mark.parametrize(
    ("authorization", "error"),
    [
        ("Basic YWxpY2U6d3Jvbmc=", "wrong user name or password"),
        ("Basic bm9ib2R5OmFsaWNlLXNlY3JldA==", "wrong user name or password"),
        ("Basic !!!", "Authorization: Basic is malformed"),
        ("Basic", "Authorization: Basic is malformed"),
        ("Bearer a.b.c", "the token is not valid"),
        ("Bearer", "the token is not valid"),
        ("Digest username=alice", "log in by Basic or Bearer here"),
    ],
)
async def test_wrong_credentials_are_refused_and_audited_without_a_secret(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture, authorization: str, error: str
) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        status, text = await endpoint.ask(
            "GET", "/v1/compaction", headers={"Authorization": authorization}
        )

    assert (status, json.loads(text)) == (401, {"error": error})
    (line,) = [json.loads(each.getMessage()) for each in caplog.records if each.name == LOGGER]
    assert (line["event"], line["reason"], line["listener"]) == ("refused", error, "HTTP")
    assert "secret" not in str(line)


async def test_a_token_names_the_user(endpoint: Endpoint) -> None:
    await endpoint.grant(Permission(Operation.DESCRIBE))
    right = {"Authorization": f"Bearer {endpoint.issuer.token('alice')}"}
    other = {"Authorization": f"Bearer {TokenIssuer().token('alice')}"}

    assert (await endpoint.ask("GET", "/v1/compaction", headers=right))[0] == 200
    assert (await endpoint.ask("GET", "/v1/compaction", headers=other))[0] == 401


async def test_a_change_and_a_denial_are_audited(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        await endpoint.ask("POST", "/v1/compaction/topics/orders/pause", headers=ADMIN)
        await endpoint.ask("POST", "/v1/compaction/topics/orders/pause", headers=BOB)
        await endpoint.ask("GET", "/v1/compaction", headers=ADMIN)

    changed, denied = (json.loads(e.getMessage()) for e in caplog.records if e.name == LOGGER)
    api = "POST /v1/compaction/topics/{topic}/pause"
    assert (changed["event"], changed["principal"], changed["api"]) == (
        "changed",
        "User:admin",
        api,
    )
    assert changed["results"] == [{"resource": "Topic:orders", "result": "NONE"}]
    assert (denied["event"], denied["principal"], denied["api"]) == ("denied", "User:bob", api)
    assert (denied["operation"], denied["rule"]) == ("ALTER", "DefaultDeny")


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/v1/compaction/erasures/{erasure}", "Cluster:kafka-cluster erasure none"),
        ("/v1/compaction/jobs/{job}", "Cluster:kafka-cluster job 7"),
        ("/v1/compaction/ledger/verify/{job}", "Cluster:kafka-cluster job 7"),
    ],
)
async def test_the_audit_log_names_what_was_deleted(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture, path: str, resource: str
) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        await endpoint.ask("DELETE", path, headers=ADMIN)

    (line,) = (json.loads(each.getMessage()) for each in caplog.records if each.name == LOGGER)
    assert line["results"] == [{"resource": resource, "result": "HTTP 404"}]


async def test_the_token_of_the_directory_opens_no_lease_where_users_log_in(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    token = (tmp_path / "data" / "remote-cleaning.token").read_text().strip()

    status, _ = await endpoint.ask(
        "POST",
        "/v1/compaction/topics/orders/partitions/0/lease",
        headers={"Authorization": f"Bearer {token}"},
    )

    assert status == 401


async def test_metrics_may_be_public(tmp_path: Path) -> None:
    async with endpoint_of(
        tmp_path, TokenIssuer(), keys="", http_authentication="basic", http_metrics_public="true"
    ) as endpoint:
        assert (await endpoint.ask("GET", "/metrics"))[0] == 200
        assert (await endpoint.ask("GET", "/v1/compaction"))[0] == 401


async def test_without_logins_the_endpoint_serves_everyone(tmp_path: Path) -> None:
    async with endpoint_of(tmp_path, TokenIssuer(), keys="") as endpoint:
        assert (await endpoint.ask("POST", "/v1/compaction/pause"))[0] == 200
        assert (await endpoint.ask("GET", "/metrics"))[0] == 200


async def test_an_unknown_path_is_not_found_without_a_login(endpoint: Endpoint) -> None:
    assert (await endpoint.ask("GET", "/v2"))[0] == 404
    assert (await endpoint.ask("PUT", "/v1/compaction"))[0] == 405
