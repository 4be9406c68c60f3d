"""The subject of a certificate as text, exactly as Java writes it.

    CN=client,OU=Data,O=Example,C=DE        RFC 2253: the last component of the subject first

Principals, ACLs and mapping rules compare this text, so it must be the one that Kafka compares.
Attributes without a short name in RFC 2253 are written as their number and the encoded value in
hexadecimal: `1.2.840.113549.1.9.1=#16056140622e63`.

Source: RFC 2253; Java, X500Principal.getName(); Apache Kafka, SslTransportLayer.peerPrincipal.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID

SHORT_NAMES = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
ESCAPED = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a certificate in DER. Raises ValueError if it is malformed."""
    try:
        return written(x509.load_der_x509_certificate(certificate).subject)
    except Exception as error:
        # The library documents no list of errors: InvalidVersion, for one, is no ValueError.
        raise ValueError(f"the certificate is malformed: {error}") from error


def written(name: x509.Name) -> str:
    """Returns a name in RFC 2253's form."""
    return ",".join(
        "+".join(_attribute(attribute) for attribute in component)
        for component in reversed(list(name.rdns))
    )


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    short = SHORT_NAMES.get(attribute.oid)
    if short is None or isinstance(attribute.value, bytes):
        return f"{short or attribute.oid.dotted_string}=#{_encoded(attribute).hex()}"
    return f"{short}={_escaped(attribute.value)}"


def _encoded(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Returns the DER of an attribute's value: the last element of name, component and attribute."""
    attributes = _content(_content(_content(x509.Name([attribute]).public_bytes())))
    oid = _content(attributes)
    return attributes[attributes.index(oid) + len(oid) :]


def _content(der: bytes) -> bytes:
    """Returns the content of the first element of a DER text."""
    if der[1] < 0x80:
        return der[2 : 2 + der[1]]
    start = 2 + (der[1] & 0x7F)
    return der[start : start + int.from_bytes(der[2:start], "big")]


def _escaped(text: str) -> str:
    characters = ["\\" + each if each in ESCAPED else each for each in text]
    leading = len(text) - len(text.lstrip(" "))
    trailing = len(text.rstrip(" "))
    for index, each in enumerate(text):
        if each == " " and not leading <= index < trailing:
            characters[index] = "\\ "
    return "".join(characters)
