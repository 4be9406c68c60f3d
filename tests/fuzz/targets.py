"""The targets of the fuzzer: each takes any bytes, and raises only if our code is wrong.

A target passes the bytes to a parser and accepts exactly the errors that the parser documents. Where a
value is stored, it also checks that the stored form can be read again.

The first bytes of an input often choose something; the rest is what a peer or an operator has sent.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from joserfc.jwk import KeySet

from protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from protocol.wire.api_keys import APIS
from protocol.wire.decode import decode
from protocol.wire.errors import DecodeError, ProtocolError
from protocol.wire.schema import Message
from server.client.errors import Misconfigured
from server.config.listeners.jaas import JaasError, parse_jaas
from server.config.listeners.sasl_listeners import OAuthRules
from server.handlers import alter_client_quotas, create_acls, describe_client_quotas
from server.handlers.shared.acl_filters import acl_filter
from server.net.tls_handshake import reason_of
from server.replication.link_spec import BadLink, stored_link, without_secrets
from server.security import acl_store
from server.security.acls import fault_of_acl, fault_of_filter
from server.security.distinguished_name import subject_of
from server.security.jks import MAGIC
from server.security.key_stores import StoreError, read_key_store, read_trust_store
from server.security.principal_mapping import NoMatchingRule, PrincipalMapping
from server.security.quotas.quota_entity import QuotaEntity
from server.security.sasl.exchange import (
    Exchange,
    Failure,
    PasswordQuestion,
    Success,
    TokenFacts,
    TokenQuestion,
)
from server.security.sasl.oauthbearer import OAuthExchange
from server.security.sasl.plain import PlainExchange
from server.security.sasl.scram import ScramExchange
from server.security.sasl.token_claims import TokenRefused, facts_of, parse_keys, validated
from server.security.scram_credentials import ScramMechanism, ScramVerifier
from storage.formats.config_property import ConfigError
from tests.harness.certificates import Certificates
from tests.harness.token_issuer import TokenIssuer

PASSWORD = "secret"
NOW_S = 1_800_000_000.0
STEPS_MAX = 4
VERIFIER = ScramVerifier(salt=b"salt", iterations=4096, stored_key=bytes(32), server_key=bytes(32))
RULES = OAuthRules(
    keys_url="",
    issuer="",
    audiences=(),
    clock_skew_s=0,
    scope_claim="scope",
    subject_claim="sub",
    refresh_ms=1,
    retry_ms=1,
    retry_max_ms=1,
)


def plain(data: bytes) -> None:
    """A login by PLAIN."""
    _log_in(PlainExchange(), data)


def scram(data: bytes) -> None:
    """A login by SCRAM, whose messages are separated by 0xff; `@` stands for the broker's nonce."""
    _log_in(ScramExchange(ScramMechanism.SHA_256, lambda *_: VERIFIER, nonce="@"), data)


def oauthbearer(data: bytes) -> None:
    """A login by OAUTHBEARER; every token is validated."""
    _log_in(OAuthExchange(), data)


def _log_in(exchange: Exchange, data: bytes) -> None:
    for token in data.split(b"\xff")[:STEPS_MAX]:
        step = exchange.step(token)
        if isinstance(step, PasswordQuestion):
            step = step.then(len(token) % 2 == 0)
        elif isinstance(step, TokenQuestion):
            step = step.then(_facts(step.token))
        assert isinstance(exchange.claimed_user, str)
        if isinstance(step, Success):
            assert step.user
        if isinstance(step, Success | Failure):
            assert isinstance(exchange.step(token), Failure), "a login took a token after its end"


def _facts(token: str) -> TokenFacts | None:
    try:
        return validated(token, _issuer_keys(), RULES, now_s=NOW_S)
    except TokenRefused:
        return None


@cache
def _issuer_keys() -> KeySet:
    return parse_keys(TokenIssuer().key_set)


def token(data: bytes) -> None:
    """The three parts of a token, as a client writes them."""
    _facts(data.decode("latin-1"))


def token_claims(data: bytes) -> None:
    """The claims of a token whose signature is right."""
    with suppress(ValueError, RecursionError):
        claims = json.loads(data)
        if isinstance(claims, dict):
            with suppress(TokenRefused):
                facts_of(claims, RULES, now_s=NOW_S)


def issuer_keys(data: bytes) -> None:
    """The keys that an issuer publishes."""
    with suppress(ValueError):
        parse_keys(data)


def jaas(data: bytes) -> None:
    """The value of `sasl.jaas.config`."""
    with suppress(JaasError):
        module = parse_jaas(data.decode("utf-8", "replace"))
        assert PASSWORD not in repr(module)


def key_store(data: bytes) -> None:
    """A key store of any kind."""
    with suppress(StoreError):
        read_key_store(data, store_password=_password(data), key_password=PASSWORD).pem()


def trust_store(data: bytes) -> None:
    """A trust store of any kind."""
    with suppress(StoreError):
        read_trust_store(data, password=_password(data))


def _password(store: bytes) -> str:
    """Returns none for JKS: else its digest over the file would refuse nearly every input."""
    return "" if store.startswith(MAGIC) else PASSWORD


def distinguished_name(data: bytes) -> None:
    """The certificate that a client shows."""
    with suppress(ValueError):
        subject_of(data)


def principal_mapping(data: bytes) -> None:
    """Rules, a line break, and the subject of a certificate.

    The rules are only parsed, because a pattern of the operator may take exponential time, as in Kafka.
    The subject meets a fixed pattern, with the text of the rules as its replacement.
    """
    rules, _, subject = data.decode("utf-8", "replace").partition("\n")
    with suppress(ConfigError, NoMatchingRule):
        PrincipalMapping.parse(f"RULE:^CN=(.*?),(.*)$/{rules}/L").name_of(subject)
    with suppress(ConfigError):
        PrincipalMapping.parse(rules)


def acl_requests(data: bytes) -> None:
    """CreateAcls, DescribeAcls and DeleteAcls."""
    request = _decoded(data, (CreateAclsRequest, DescribeAclsRequest, DeleteAclsRequest))
    if isinstance(request, CreateAclsRequest):
        for asked in request.creations:
            acl = create_acls._acl(asked)
            if fault_of_acl(acl) is None:
                assert acl_store._parse("key", acl_store._text(acl)) == acl
    elif isinstance(request, DescribeAclsRequest):
        fault_of_filter(acl_filter(request))
    elif isinstance(request, DeleteAclsRequest):
        for each in request.filters:
            fault_of_filter(acl_filter(each))


def quota_requests(data: bytes) -> None:
    """AlterClientQuotas and DescribeClientQuotas."""
    request = _decoded(data, (AlterClientQuotasRequest, DescribeClientQuotasRequest))
    if isinstance(request, AlterClientQuotasRequest):
        for entry in request.entries:
            entity = alter_client_quotas._entity(entry)
            checked = alter_client_quotas._check(entry, entity, is_twice=False)
            if checked.fault is None:
                assert QuotaEntity.from_text(entity.to_text()) == entity
    elif isinstance(request, DescribeClientQuotasRequest):
        describe_client_quotas._fault_of_filter(request.components)


def _decoded(data: bytes, types: tuple[type[Message], ...]) -> Message | None:
    """Returns the request in `data`, whose first two bytes choose its type and version."""
    if len(data) < 2:
        return None
    kind = types[data[0] % len(types)]
    api = APIS[kind.api_key]
    version = api.version_min + data[1] % (api.version_max - api.version_min + 1)
    try:
        return decode(kind, version, memoryview(data)[2:])
    except (DecodeError, ProtocolError):
        return None


def link(data: bytes) -> None:
    """A link to another cluster, as JSON."""
    with suppress(BadLink):
        spec = stored_link("link", data)
        assert stored_link("link", spec.stored()) == spec
        assert PASSWORD not in repr(spec)
        assert isinstance(spec.topic_filter()("topic"), bool)
        with suppress(Misconfigured):
            spec.access()
    without_secrets(data.decode("utf-8", "replace"))


def client_hello(data: bytes) -> None:
    """The first bytes on a TLS port; the peer sends no more."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(data[: 32 << 10])
        theirs.shutdown(socket.SHUT_WR)
        tls = _server_context().wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
        error: OSError | None = None
        with tls:
            try:
                tls.do_handshake()
            except OSError as raised:
                error = raised
        assert error is not None, "a handshake succeeded although the client answered nothing"
        assert reason_of(error)


@cache
def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        context.load_cert_chain(certificates.broker())
        context.load_verify_locations(certificates.authority_file)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        plain, scram, oauthbearer, token, token_claims, issuer_keys, jaas, key_store, trust_store,
        distinguished_name, principal_mapping, acl_requests, quota_requests, link, client_hello,
    )
}  # fmt: skip
