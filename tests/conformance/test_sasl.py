"""Real clients log in again and manage the users of SCRAM.

`test_login_clients.py` has each client with each mechanism, and with wrong passwords.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient

from pipeline.spark.jars import JarsUnavailable
from tests.harness.broker_process import BrokerProcess, free_ports, samples, scrape
from tests.harness.kafka_tools import KafkaTools
from tests.harness.sasl_login import PLAIN_JAAS
from tests.harness.token_issuer import TokenIssuer

pytestmark = pytest.mark.usefixtures("clients_collected")

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECONDS = 20
REAUTH_MS = 2500


@dataclass(frozen=True)
class SaslBroker:
    process: BrokerProcess
    sasl: str
    """host:port of the SASL listener."""
    short: str
    """host:port of the SASL listener whose sessions end after REAUTH_MS."""
    issuer: TokenIssuer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    sasl, short = free_ports(2)
    folder, issuer = tmp_path_factory.mktemp("sasl"), TokenIssuer()
    process, keys_url = BrokerProcess(folder), issuer.write(folder / "keys.json")
    process.overrides |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{process.port},SASL://127.0.0.1:{sasl},"
        f"SHORT://127.0.0.1:{short}",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "sasl.oauthbearer.jwks.endpoint.url": keys_url,
        "plain.sasl.jaas.config": PLAIN_JAAS,
        "listener.name.short.connections.max.reauth.ms": REAUTH_MS,
    }
    with process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion("alice", info, b"alice-secret")
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(SECONDS)
        yield SaslBroker(process, f"127.0.0.1:{sasl}", f"127.0.0.1:{short}", issuer)


def librdkafka(address: str, mechanism: str, password: str = "alice-secret") -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def python(address: str, mechanism: str, password: str = "alice-secret") -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in_again_on_the_same_connection(
    served: SaslBroker, mechanism: str
) -> None:
    """KIP-368: for three sessions records arrive, and no connection is closed for its age."""
    before = metric(served, "successful_reauthentication_total", mechanism)
    topic = f"again-{mechanism}"
    failures: list[Any] = []
    producer = Producer(librdkafka(served.short, mechanism) | {"error_cb": failures.append})
    end = time.monotonic() + 3 * REAUTH_MS / 1000
    while time.monotonic() < end:
        producer.produce(topic, b"x", on_delivery=collected(failures))
        producer.flush(SECONDS)
    assert not failures
    assert metric(served, "successful_reauthentication_total", mechanism) >= before + 2


def collected(failures: list[Any]) -> Callable[[Any, Any], None]:
    return lambda error, _: failures.append(error) if error else None


def metric(served: SaslBroker, name: str, mechanism: str, listener: str = "SHORT") -> float:
    text = scrape(f"127.0.0.1:{served.process.http_port}")
    full_name = f"kafka_server_socket_server_metrics_{name}"
    return sum(samples(text, full_name, listener=listener, mechanism=mechanism))


# Tokens.


def test_confluent_kafka_with_a_token(served: SaslBroker) -> None:
    """It logs in again with its token while that is valid."""
    failures: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": served.short,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (served.issuer.token("otto"), time.time() + 300),
            "error_cb": failures.append,
        }
    )
    end = time.monotonic() + 3 * REAUTH_MS / 1000
    while time.monotonic() < end:
        producer.produce("token-confluent", b"x", on_delivery=collected(failures))
        assert producer.flush(SECONDS) == 0
    assert not failures
    assert metric(served, "successful_reauthentication_total", "OAUTHBEARER") >= 2


# Users.


def test_librdkafka_changes_scram_users(served: SaslBroker) -> None:
    admin = AdminClient(librdkafka(served.sasl, "SCRAM-SHA-512"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    done = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("dan", info, b"pw")])
    done["dan"].result(SECONDS)
    described = admin.describe_user_scram_credentials(["dan"])["dan"].result(SECONDS)
    (found,) = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
    as_dan = librdkafka(served.sasl, "SCRAM-SHA-256", "pw") | {"sasl.username": "dan"}
    assert AdminClient(as_dan).list_topics(timeout=SECONDS).brokers
    gone = UserScramCredentialDeletion("dan", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["dan"].result(SECONDS)
    assert "dan" not in admin.describe_user_scram_credentials().result(SECONDS)


def test_kafka_python_describes_scram_users(served: SaslBroker) -> None:
    admin = KafkaAdminClient(**python(served.sasl, "SCRAM-SHA-256"))
    assert "alice" in str(admin.describe_user_scram_credentials(["alice"]))
    admin.close()


# Java.


@pytest.fixture(scope="module")
def tools(served: SaslBroker) -> Iterator[KafkaTools]:
    try:
        running = KafkaTools(served.sasl)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with running:
        yield running


def java_file(folder: Path, mechanism: str, password: str = "alice-secret") -> str:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    path = folder / "client.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required"
        f' username="alice" password="{password}";\n'
    )
    return str(path)


def test_kafka_configs_manages_scram_users(
    served: SaslBroker, tools: KafkaTools, tmp_path: Path
) -> None:
    login = ("--command-config", java_file(tmp_path, "SCRAM-SHA-512"))
    of_user = ("--entity-type", "users", "--entity-name", "java")
    credential = "SCRAM-SHA-256=[iterations=8192,password=pw]"
    added = tools.run("kafka-configs", *login, "--alter", *of_user, "--add-config", credential)
    assert added.code == 0, added.errors
    as_java = librdkafka(served.sasl, "SCRAM-SHA-256", "pw") | {"sasl.username": "java"}
    assert AdminClient(as_java).list_topics(timeout=SECONDS).brokers
    gone = tools.run(
        "kafka-configs", *login, "--alter", *of_user, "--delete-config", "SCRAM-SHA-256"
    )
    assert gone.code == 0, gone.errors
    admin = AdminClient(librdkafka(served.sasl, "SCRAM-SHA-512"))
    assert "java" not in admin.describe_user_scram_credentials().result(SECONDS)


def test_java_logs_in_again_on_the_same_connection(
    served: SaslBroker, tools: KafkaTools, tmp_path: Path
) -> None:
    before = metric(served, "successful_reauthentication_total", "SCRAM-SHA-256")
    words = (
        "--topic java-again --num-records 80 --record-size 10 --throughput 10"
        f" --bootstrap-server {served.short}"
    )
    config = java_file(tmp_path, "SCRAM-SHA-256")
    ran = tools.run("kafka-producer-perf-test", *words.split(), "--command-config", config)
    assert ran.code == 0, ran.errors
    assert "80 records sent" in ran.output
    assert metric(served, "successful_reauthentication_total", "SCRAM-SHA-256") >= before + 2
