"""The client of a schema registry, against one that also gives wrong answers."""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from schemas import registry_client
from schemas.outcomes import (
    REGISTRY_FAILED,
    REGISTRY_REFUSED,
    REGISTRY_UNREACHABLE,
    UNKNOWN_SCHEMA,
    UNSUPPORTED_SCHEMA,
)
from schemas.registry_access import BadRegistryUrl, RegistryAccess, registry_url
from schemas.registry_answers import Unavailable
from schemas.registry_client import ANSWER_BYTES_MAX, RegistryClient
from schemas.schema import Named, SchemaType
from tests.harness.broker_process import free_ports
from tests.harness.certificates import Certificates
from tests.harness.fake_registry import FakeRegistry, Referred, send


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry().served() as served:
        yield served


def client_of(*urls: str, user_info: str = "", tls: ssl.SSLContext | None = None) -> RegistryClient:
    access = RegistryAccess(urls=tuple(map(registry_url, urls)), user_info=user_info, tls=tls)
    return RegistryClient(access)


def refusal(client: RegistryClient, schema_id: int = 1) -> tuple[str, str]:
    """Returns the code and the sentence of a schema that cannot be had."""
    with pytest.raises(Unavailable) as refused:
        client.schema(schema_id)
    return refused.value.code, str(refused.value)


def test_a_schema_comes_with_its_type(registry: FakeRegistry) -> None:
    avro, proto = registry.add('"string"'), registry.add('syntax = "proto3";', "PROTOBUF")
    client = client_of(registry.url + "/")

    found = client.schema(avro)
    assert (found.id, found.type, found.text) == (1, SchemaType.AVRO, '"string"')
    assert client.schema(proto).type is SchemaType.PROTOBUF


def test_a_schema_comes_with_all_that_it_refers_to_in_order(registry: FakeRegistry) -> None:
    registry.add("land", subject="land%2Fv")
    registry.add("city", subject="city", refers_to=[Referred("geo.Land", "land/v")])
    user = registry.add(
        "user", refers_to=[Referred("geo.City", "city"), Referred("geo.Land", "land/v")]
    )

    found = client_of(registry.url).schema(user)
    assert found.references == (Named("geo.Land", "land"), Named("geo.City", "city"))


def test_a_subject_has_versions_and_a_newest_one(registry: FakeRegistry) -> None:
    registry.add("land", subject="land")
    for text in ("one", "two"):
        registry.add(text, subject="a%2Fb", refers_to=[Referred("geo.Land", "land")])
    client = client_of(registry.url)

    newest, first = client.of_subject("a/b"), client.of_subject("a/b", "1")
    assert [(each.id, each.text) for each in (newest, first)] == [(3, "two"), (2, "one")]
    assert newest.references == (Named("geo.Land", "land"),)
    for version, subject in (("7", "a/b"), ("latest", "other")):
        with pytest.raises(Unavailable) as refused:
            client.of_subject(subject, version)
        assert refused.value.code == UNKNOWN_SCHEMA
        assert str(refused.value).endswith(f"has no version {version} of the subject {subject}")


def test_schemas_that_refer_to_each_other_without_end_are_refused(registry: FakeRegistry) -> None:
    registry.add("a", subject="a", refers_to=[Referred("b", "b")])
    registry.add("b", subject="b", refers_to=[Referred("a", "a")])

    code, said = refusal(client_of(registry.url))
    assert (code, said) == (UNSUPPORTED_SCHEMA, "the schema refers to too many others")
    assert len(registry.asked) < 100


def test_a_schema_that_is_not_there_says_so(registry: FakeRegistry) -> None:
    code, said = refusal(client_of(registry.url), 7)
    assert code == UNKNOWN_SCHEMA
    assert f"the registry at {registry.url} has no schema 7" in said


def test_a_language_that_nobody_decodes_is_refused(registry: FakeRegistry) -> None:
    registry.add("...", "THRIFT")
    assert refusal(client_of(registry.url))[0] == UNSUPPORTED_SCHEMA


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (401, REGISTRY_REFUSED, "check schema.registry.basic.auth.user.info"),
        (403, REGISTRY_REFUSED, "check schema.registry.basic.auth.user.info"),
        (400, REGISTRY_FAILED, "answered with status 400"),
        (500, REGISTRY_FAILED, "answered with status 500"),
        (503, REGISTRY_UNREACHABLE, "answered with status 503"),
        (429, REGISTRY_UNREACHABLE, "answered with status 429"),
    ],
)
def test_a_status_says_what_is_wrong(
    registry: FakeRegistry, status: int, code: str, said: str
) -> None:
    registry.instead = lambda handler: send(handler, status, b"{}")
    found = refusal(client_of(registry.url))
    assert found[0] == code
    assert said in found[1]


def test_a_redirect_is_not_followed(registry: FakeRegistry) -> None:
    schema = registry.add('"string"')
    place = {"Location": f"{registry.url}/schemas/ids/{schema}"}
    registry.instead = lambda handler: send(handler, 302, b"", place)

    code, said = refusal(client_of(registry.url))
    assert code == REGISTRY_REFUSED
    assert "redirects to another address" in said
    assert len(registry.asked) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"schema": 7}', b"\xff", b"[" * 100_000])
def test_what_is_no_registry_is_recognized(registry: FakeRegistry, body: bytes) -> None:
    registry.instead = lambda handler: send(handler, 200, body)
    code, said = refusal(client_of(registry.url))
    assert code == REGISTRY_REFUSED
    assert "is no schema registry: check its URL" in said


def test_an_answer_has_a_bound(registry: FakeRegistry) -> None:
    registry.instead = lambda handler: send(handler, 200, b"x" * (ANSWER_BYTES_MAX + 1))
    code, said = refusal(client_of(registry.url))
    assert (code, "the schema is larger than" in said) == (UNSUPPORTED_SCHEMA, True)


def test_an_answer_that_breaks_off_is_none(registry: FakeRegistry) -> None:
    def cut(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"schema": "x"}')

    registry.instead = cut
    assert refusal(client_of(registry.url))[0] == REGISTRY_UNREACHABLE


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_a_registry_that_sends_a_byte_now_and_then_is_given_up(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(registry_client, "SECONDS_MAX", 0.5)

    def drip(handler: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            handler.wfile.write(beginning)
            while True:
                handler.wfile.write(b"H")
                handler.wfile.flush()
                time.sleep(0.05)

    registry.instead = drip  # It never ends by itself.
    code, said = refusal(client_of(registry.url))
    assert code == REGISTRY_UNREACHABLE
    assert "it does not answer within" in said


def test_the_next_node_is_asked_if_one_is_down(registry: FakeRegistry) -> None:
    schema = registry.add('"string"')
    (port,) = free_ports(1)
    down = f"http://127.0.0.1:{port}"

    assert client_of(down, registry.url).schema(schema).text == '"string"'
    code, said = refusal(client_of(down))
    assert (code, down in said) == (REGISTRY_UNREACHABLE, True)


def test_the_login_is_sent_and_never_shown(registry: FakeRegistry) -> None:
    schema = registry.add('"string"')
    access = RegistryAccess(urls=(registry_url(registry.url),), user_info="ada:s3cret")

    RegistryClient(access).schema(schema)
    assert registry.headers["Authorization"] == "Basic " + b64encode(b"ada:s3cret").decode()
    assert "s3cret" not in repr(access)


def test_a_registry_with_tls_is_trusted_by_its_authority(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.broker())
    tls.load_verify_locations(certificates.authority_file)
    tls.verify_mode = ssl.CERT_REQUIRED
    with FakeRegistry().served(tls) as registry:
        schema = registry.add('"string"')
        own = certificates.trust(certificates.client())

        assert client_of(registry.url, tls=own).schema(schema).text == '"string"'
        # Without a certificate of its own, and without the authority.
        assert refusal(client_of(registry.url, tls=certificates.trust()))[0] == REGISTRY_UNREACHABLE
        code, said = refusal(client_of(registry.url))
        assert code == REGISTRY_UNREACHABLE
        assert "check schema.registry.ssl.truststore.location" in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "registry:8081",
        "ftp://registry",
        "http://",
        "http://h:port",
        "http://h?x=1",
        "http://h#x",
    ],
)
def test_a_url_that_cannot_be_a_registrys_is_refused(text: str) -> None:
    with pytest.raises(BadRegistryUrl):
        registry_url(text)


def test_a_password_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(BadRegistryUrl) as refused:
        registry_url("http://ada:s3cret@registry:8081")
    assert "s3cret" not in str(refused.value)
    assert "schema.registry.basic.auth.user.info" in str(refused.value)
