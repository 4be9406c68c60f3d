"""A listener for each way to connect and each mistake, with the same properties for every broker.

`SecuredListeners` chooses ports and writes certificates and keys; its properties configure Kompakt and
Apache Kafka alike, so the same client can be compared with both:

    PLAINTEXT   open                     SASL       SASL without TLS
    TLS         SSL                      SECURE     SASL over TLS
    MUTUAL      SSL, asks for a          SHORT      SASL over TLS whose sessions end after REAUTH_MS
                certificate              FEW        SASL without TLS, by SCRAM-SHA-512 only
    EXPIRED     SSL, its certificate     ELSEWHERE  SSL, its certificate names another host
                has expired

    python -m tests.harness.secured_listeners FOLDER    run an Apache Kafka with them until Ctrl-C
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.base.apache_kafka import kafka_command
from bench.base.processes import running
from tests.harness.broker_process import BrokerProcess, free_ports, samples
from tests.harness.certificates import Certificates
from tests.harness.group_run import until
from tests.harness.token_issuer import TokenIssuer

PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "SASL": "SASL_PLAINTEXT",
    "SECURE": "SASL_SSL",
    "SHORT": "SASL_SSL",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "FEW": "SASL_PLAINTEXT",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
}
"""The protocol of each listener."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice", "alice-secret"
OTHER_USER, OTHER_PASSWORD = "bob", "bob-secret"
REAUTH_MS = 2500
SECONDS = 30
START_SECONDS_MAX = 240
"""How long Apache Kafka may take to start on a busy machine."""
MODULES = "org.apache.kafka.common.security"
JAAS = {
    "plain": f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}"'
    f' user_{OTHER_USER}="{OTHER_PASSWORD}";',
    "scram-sha-256": f"{MODULES}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{MODULES}.scram.ScramLoginModule required;",
    "oauthbearer": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
}


class SecuredListeners:
    """The ports, certificates, keys and users of one broker; its files are in `folder`."""

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        others = [name for name in PROTOCOLS if name != "PLAINTEXT"]
        self.ports = dict(zip(others, free_ports(len(others)), strict=True))
        self.ports["PLAINTEXT"] = port or free_ports(1)[0]
        self.certificates = Certificates(folder / "certificates")
        self.stranger = Certificates(folder / "stranger")
        """An authority that the broker does not trust."""
        self.issuer = TokenIssuer()
        self.keys_url = self.issuer.write(folder / "keys.json")
        self.shown = self.certificates.as_pkcs8(self.certificates.broker())
        """The file of the broker's certificate."""

    def address(self, listener: str) -> str:
        """Returns host:port of a listener."""
        return f"127.0.0.1:{self.ports[listener]}"

    def addresses(self) -> str:
        """Returns all addresses in the form of `listeners`."""
        return ",".join(f"{name}://{self.address(name)}" for name in PROTOCOLS)

    def properties(self) -> dict[str, str]:
        """Returns the properties of the broker."""
        issued = self.certificates
        expired = issued.as_pkcs8(issued.broker("expired.pem", expired=True))
        elsewhere = issued.as_pkcs8(issued.broker("elsewhere.pem", hosts=("other.example.org",)))
        return {
            "listeners": self.addresses(),
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in PROTOCOLS.items()),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.shown),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(issued.authority_file),
            "listener.name.few.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.expired.ssl.keystore.location": str(expired),
            "listener.name.elsewhere.ssl.keystore.location": str(elsewhere),
            "listener.name.short.connections.max.reauth.ms": str(REAUTH_MS),
            "sasl.oauthbearer.jwks.endpoint.url": self.keys_url,
            "connection.failed.authentication.delay.ms": "0",
            "group.initial.rebalance.delay.ms": "0",
            **{
                f"listener.name.{name.lower()}.{mechanism}.sasl.jaas.config": jaas
                for name, protocol in PROTOCOLS.items()
                if protocol.startswith("SASL")
                for mechanism, jaas in JAAS.items()
            },
        }

    def shown_certificate(self) -> str:
        """Returns the certificate that a new connection gets."""
        return ssl.get_server_certificate(("127.0.0.1", self.ports["SECURE"]))

    def change_certificate(self, name: str) -> None:
        """Replace the broker's certificate, and wait until new connections get the new one."""
        old = self.shown_certificate()
        new = self.certificates.as_pkcs8(self.certificates.broker(f"{name}.pem"))
        new.replace(self.shown)
        until("new certificate", lambda: self.shown_certificate() != old, lambda: old)

    def add_users(self) -> None:
        """Give the user its password in both forms of SCRAM. The broker must be running."""
        admin = AdminClient({"bootstrap.servers": self.address("PLAINTEXT")})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(SECONDS)


def logins_again(process: BrokerProcess) -> float:
    """Returns how often clients of the listener SHORT have logged in again."""
    name = "kafka_server_socket_server_metrics_successful_reauthentication_total"
    return sum(samples(process.metrics(), name, listener="SHORT"))


@contextmanager
def secured_broker(
    folder: Path, overrides: Mapping[str, object] | None = None
) -> Iterator[tuple[BrokerProcess, SecuredListeners]]:
    """Run a broker with these listeners."""
    process = BrokerProcess(folder)
    listeners = SecuredListeners(folder, port=process.port)
    process.overrides |= {**listeners.properties(), **(overrides or {})}
    with process:
        listeners.add_users()
        yield process, listeners


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredListeners]:
    """Run an Apache Kafka with these listeners."""
    listeners = SecuredListeners(folder)
    properties = listeners.properties()
    handlers = f"{MODULES}.oauthbearer"
    for name in ("sasl", "secure", "short", "few"):
        prefix = f"listener.name.{name}.oauthbearer.sasl"
        properties |= {
            f"{prefix}.server.callback.handler.class": f"{handlers}.OAuthBearerValidatorCallbackHandler",
            f"{prefix}.login.callback.handler.class": f"{handlers}.internals.unsecured"
            ".OAuthBearerUnsecuredLoginCallbackHandler",
        }
    options = [
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={listeners.keys_url}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={folder / 'keys.json'}",
    ]
    port = listeners.ports["PLAINTEXT"]
    command = kafka_command(port, folder / "kafka", properties=properties, options=options)
    with running(command, port, start_seconds_max=START_SECONDS_MAX):
        listeners.add_users()
        yield listeners


if __name__ == "__main__":
    with secured_kafka(Path(sys.argv[1]).absolute()) as chosen:
        print(chosen.addresses(), flush=True)  # noqa: T201
        sys.stdin.read()
