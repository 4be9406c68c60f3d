"""Subjects as text. The expected texts are what Java's X500Principal.getName() returns."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import NameAttribute, RelativeDistinguishedName
from cryptography.x509.oid import NameOID, ObjectIdentifier

from server.security.distinguished_name import subject_of, written
from tests.harness.certificates import Certificates

CN, OU, O, C = (  # noqa: E741
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.COUNTRY_NAME,
)


@pytest.mark.parametrize(
    ("components", "text"),
    [
        (
            [[(C, "DE")], [(O, "Org")], [(OU, "Data")], [(CN, "alice")]],
            "CN=alice,OU=Data,O=Org,C=DE",
        ),
        ([[(CN, 'a,b=c#x+y<>;z"\\')]], 'CN=a\\,b\\=c\\#x\\+y\\<\\>\\;z\\"\\\\'),
        (
            [[(OU, " lead")], [(O, "trail ")], [(CN, "Ünï  dbl")]],
            "CN=Ünï  dbl,O=trail\\ ,OU=\\ lead",
        ),
        ([[(CN, "q"), (OU, "two")]], "CN=q+OU=two"),
        ([[(NameOID.EMAIL_ADDRESS, "a@b.c")]], "1.2.840.113549.1.9.1=#16056140622e63"),
        ([[(NameOID.SERIAL_NUMBER, "12")], [(CN, "#x")]], "CN=\\#x,2.5.4.5=#13023132"),
        ([[(NameOID.DOMAIN_COMPONENT, "d")], [(NameOID.USER_ID, "u")]], "UID=u,DC=d"),
        ([[(CN, "   ")]], "CN=\\ \\ \\ "),
        ([], ""),
    ],
)
def test_a_subject_is_written_as_java_writes_it(
    components: list[list[tuple[ObjectIdentifier, str]]], text: str
) -> None:
    name = x509.Name(
        RelativeDistinguishedName(NameAttribute(oid, value) for oid, value in each)
        for each in components
    )

    assert written(name) == text


def test_a_certificate_of_an_unknown_version_is_malformed(tmp_path: Path) -> None:
    pem = Certificates(tmp_path).client().read_bytes()
    der = x509.load_pem_x509_certificates(pem)[0].public_bytes(Encoding.DER)
    version = b"\xa0\x03\x02\x01"

    with pytest.raises(ValueError, match="malformed"):
        subject_of(der.replace(version + b"\x02", version + b"\x23", 1))
