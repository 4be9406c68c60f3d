"""The broker's configuration: sources, validation, and messages for mistakes."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.pacing.throttle import IoRates
from replog.trigger import SnapshotterName
from server.config.config import BrokerConfig, known_properties
from server.config.listeners.addresses import Address, HttpListener
from server.config.sources import (
    from_environment,
    parse_overrides,
    parse_properties,
    property_of_variable,
    read_sources,
)
from storage.formats.config_property import ConfigError, properties_of

KAFKAS_OWN_FILE = """
# Licensed to the Apache Software Foundation
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def config(**texts: str) -> BrokerConfig:
    return BrokerConfig.from_texts({name.replace("_", "."): text for name, text in texts.items()})


# Values.


def test_without_anything_it_listens_on_loopback_only() -> None:
    plain = config()

    (listener,) = plain.resolved_listeners()
    assert listener.bind == Address(name="PLAINTEXT", host="127.0.0.1", port=9092)
    assert listener.advertised == listener.bind
    assert plain.resolved_http_listener() == HttpListener(host="127.0.0.1", port=9644)
    assert plain.data_directories == ("data",)


def test_the_server_properties_that_kafka_ships_start_this_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        config = BrokerConfig.from_texts(
            parse_properties(KAFKAS_OWN_FILE) | {"allow.unauthenticated.listeners": "true"}
        )

    (listener,) = config.resolved_listeners()
    assert listener.bind == Address(name="PLAINTEXT", host="", port=9092)
    assert str(listener.advertised) == "PLAINTEXT://localhost:9092"
    assert config.data_directories == ("/tmp/kraft-combined-logs",)
    assert config.log_defaults.retention_ms == 168 * 3_600_000
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len([record for record in caplog.records if "process.roles" in record.message]) == 1


def test_every_default_is_within_its_own_bounds_and_documented() -> None:
    for field, declared in properties_of(BrokerConfig).items():
        text = declared.format(getattr(BrokerConfig(), field))
        assert text is not None
        assert declared.parse(text) == getattr(BrokerConfig(), field), declared.name
        assert declared.doc.endswith("."), declared.name


def test_each_property_is_declared_once_by_one_part() -> None:
    parts = (BrokerConfig, *BrokerConfig.__bases__)
    fields = [field for part in parts for field in part.__annotations__]
    names = [declared.name for declared in properties_of(BrokerConfig).values()]

    assert sorted(set(fields)) == sorted(fields)
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "log.segment.bytes",
            "12",
            "12 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        ("log.roll.hours", "0", "0 for configuration log.roll.hours: Value must be at least 1"),
        (
            "default.replication.factor",
            "3",
            "configuration default.replication.factor: Value must be no more than 1",
        ),
        ("node.id", "one", "value one for configuration node.id: Not a number of type INT"),
        (
            "log.cleaner.threads",
            "-1",
            "-1 for configuration log.cleaner.threads: Value must be at least 0",
        ),
        (
            "auto.create.topics.enable",
            "yes",
            "yes for configuration auto.create.topics.enable: Expected value to be",
        ),
        ("listeners", "localhost:9092", "listeners: localhost:9092 is not NAME://host:port"),
        ("listeners", "PLAINTEXT://:99999", "listeners: port 99999 is out of range: 0 to 65535"),
        ("listeners", "INSIDE://:9092", "has no protocol for INSIDE"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2", "names the listener PLAINTEXT twice"),
        ("listeners", "PLAINTEXT://0.0.0.0:9092", "advertised.listeners: PLAINTEXT://0.0.0.0:9092"),
        ("advertised.listeners", "PLAINTEXT://[::]:9092", "cannot be reached"),
        ("advertised.listeners", "OTHER://h:9092", "has OTHER, which is not in listeners"),
        ("advertised.listeners", "PLAINTEXT://h:0", "clients cannot connect to port 0"),
        ("http.listener", "9644", "http.listener: 9644 is not host:port"),
        ("metadata.log.dir", "/elsewhere", "metadata.log.dir: /elsewhere is not one of log.dirs"),
        ("standby.peers", "b", "standby.peers: b is not host:port"),
        ("standby.peers", "b:0", "standby.peers: b:0 is not host:port"),
        ("standby.peers", "b:70000", "standby.peers: b:70000 is not host:port"),
        ("standby.peers", "http://b:1", "standby.peers: http://b:1 is not host:port"),
        ("standby.peers", "b:1", "standby.peers: set inter.broker.listener.name first"),
        ("standby.on.lost.peer", "hope", "String must be one of: serve, wait"),
        ("broker.fenced.by", "b", "broker.fenced.by: set inter.broker.listener.name first"),
        ("broker.fenced.by", "x" * 301, "a name has at most 300 characters"),
        ("cluster.id", "", None),
    ],
)
def test_a_bad_value_is_reported_in_one_line(name: str, text: str, message: str | None) -> None:
    if message is None:
        BrokerConfig.from_texts({name: text})
        return
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_texts({name: text})

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("peers", ["b:9095", "10.0.0.2:9095,[fe80::1%eth0]:9095", ""])
def test_peers_are_addresses(peers: str) -> None:
    found = config(standby_peers=peers, inter_broker_listener_name="PLAINTEXT").standby_peers

    assert ",".join(found) == peers


def test_several_listeners_each_advertise_their_own_address() -> None:
    inside, outside = config(
        listeners="INSIDE://0.0.0.0:9092,OUTSIDE://:0",
        advertised_listeners="OUTSIDE://example.org:9094,INSIDE://broker:9092",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        allow_unauthenticated_listeners="true",
    ).resolved_listeners()

    assert str(inside.advertised_at(9092)) == "INSIDE://broker:9092"
    assert str(outside.advertised_at(41234)) == "OUTSIDE://example.org:9094"


def test_a_free_port_is_advertised_once_it_is_known() -> None:
    (listener,) = config(listeners="PLAINTEXT://127.0.0.1:0").resolved_listeners()

    assert str(listener.advertised_at(41234)) == "PLAINTEXT://127.0.0.1:41234"


def test_ipv6_addresses_are_written_in_brackets() -> None:
    (listener,) = config(listeners="PLAINTEXT://[::1]:9092").resolved_listeners()

    assert listener.bind.host == "::1"
    assert str(listener.bind) == "PLAINTEXT://[::1]:9092"


def test_broker_wide_synonyms_become_the_defaults_of_topics() -> None:
    defaults = BrokerConfig.from_texts(
        {
            "log.cleanup.policy": "compact",
            "log.cleaner.min.cleanable.ratio": "0.1",
            "message.max.bytes": "5000",
            "log.roll.hours": "2",
        }
    ).log_defaults

    assert defaults.is_compacted
    assert defaults.min_cleanable_dirty_ratio == 0.1
    assert defaults.max_message_bytes == 5000
    assert defaults.segment_ms == 7_200_000


def test_the_finer_of_two_synonyms_wins() -> None:
    texts = {"log.retention.hours": "1", "log.retention.ms": "5", "log.retention.minutes": "2"}

    assert BrokerConfig.from_texts(texts).log_defaults.retention_ms == 5
    del texts["log.retention.ms"]
    assert BrokerConfig.from_texts(texts).log_defaults.retention_ms == 120_000


def test_unlimited_retention_in_hours_stays_unlimited() -> None:
    assert BrokerConfig.from_texts({"log.retention.hours": "-1"}).log_defaults.retention_ms == -1


def test_the_name_before_kraft_still_sets_the_node_id() -> None:
    assert BrokerConfig.from_texts({"broker.id": "7"}).node_id == 7


def test_the_cleaner_gets_its_settings() -> None:
    settings = BrokerConfig.from_texts(
        {"log.cleaner.threads": "2", "log.cleaner.backoff.ms": "100"}
    ).cleaner_settings()

    assert settings.threads == 2
    assert settings.backoff_ms == 100
    assert settings.io_rates == IoRates()


def test_the_metadata_log_gets_its_settings() -> None:
    def chosen(**texts: str) -> SnapshotterName:
        return BrokerConfig.from_texts(texts).compaction_settings().snapshotter

    assert chosen() is SnapshotterName.OFFLINE_MERGE
    assert chosen(**{"replog.snapshotter": "in-process"}) is SnapshotterName.IN_PROCESS
    with pytest.raises(ConfigError, match=r"replog\.snapshotter"):
        chosen(**{"replog.snapshotter": "fork"})


def test_rows_list_every_known_property_with_its_value() -> None:
    rows = {declared.name: value for declared, value in config(log_roll_hours="3").rows()}

    assert set(rows) == known_properties()
    assert rows["log.roll.hours"] == 3
    assert rows["log.roll.ms"] == 3 * 3_600_000
    assert rows["log.segment.bytes"] == 1 << 30


# Listeners of one's own, and listeners that are open.


OPEN = "open to the network and asks clients for no authentication"


@pytest.mark.parametrize(
    "texts",
    [
        {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://kafka:9092"},
        {"listeners": "PLAINTEXT://:9092"},
        {"listeners": "PLAINTEXT://kafka.example:9092"},
        {"listeners": "PLAINTEXT://127.0.0.1:9092,SSL://192.0.2.1:9093"},
        {"listeners": "SSL://192.0.2.1:9093", "ssl.client.auth": "requested"},
        {
            "listeners": "SSL://192.0.2.1:9093",
            "ssl.client.auth": "required",
            "listener.name.ssl.ssl.client.auth": "none",
        },
        {"http.listener": "0.0.0.0:9644"},
        {"http.listener": "https://0.0.0.0:9644"},
        {"http.listener": "https://0.0.0.0:9644", "ssl.client.auth": "requested"},
    ],
)
def test_a_listener_that_is_open_to_the_network_must_be_allowed(texts: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=OPEN) as refused:
        BrokerConfig.from_texts(texts)
    assert "\n" not in str(refused.value)

    BrokerConfig.from_texts(texts | {"allow.unauthenticated.listeners": "true"})


@pytest.mark.parametrize(
    "texts",
    [
        {"listeners": "PLAINTEXT://127.0.0.7:9092,SSL://[::1]:9093", "http.listener": "[::1]:1"},
        {"listeners": "PLAINTEXT://localhost:9092", "http.listener": ""},
        {"listeners": "SSL://:9093", "ssl.client.auth": "required"},
        {"listeners": "SSL://:9093", "listener.name.ssl.ssl.client.auth": "required"},
        {"http.listener": "https://:9644", "http.authentication": "basic"},
        {"http.listener": "https://:9644", "listener.name.http.ssl.client.auth": "required"},
        {"http.listener": "127.0.0.1:9644", "http.authentication": "basic"},
    ],
)
def test_a_listener_on_loopback_or_with_authentication_needs_no_permission(
    texts: dict[str, str],
) -> None:
    BrokerConfig.from_texts(texts)


def test_passwords_without_tls_must_be_allowed() -> None:
    texts = {"http.listener": "0.0.0.0:9644", "http.authentication": "basic"}
    with pytest.raises(ConfigError, match="without encryption: use https://"):
        BrokerConfig.from_texts(texts)

    BrokerConfig.from_texts(texts | {"allow.unauthenticated.listeners": "true"})


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"http.listener": "ftp://127.0.0.1:9644"}, "is not host:port or https://host:port"),
        ({"http.authentication": "digest"}, "String must be one of: basic, bearer"),
        ({"http.authentication": "bearer"}, "OAUTHBEARER needs the URL of the issuer's keys"),
        (
            {
                "listeners": "HTTP://127.0.0.1:9092",
                "listener.security.protocol.map": "HTTP:PLAINTEXT",
                "http.listener": "https://127.0.0.1:9644",
            },
            "the name HTTP is reserved for http.listener",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "SSL"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol",
        ),
        ({"inter.broker.listener.name": "INSIDE"}, "inter.broker.listener.name: INSIDE must be"),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol: SSL must be"),
        ({"security.inter.broker.protocol": "TLS"}, "String must be one of: PLAINTEXT, SSL"),
        (
            {"listener.name.outside.ssl.client.auth": "perhaps"},
            "perhaps for configuration listener.name.outside.ssl.client.auth: String must be one of",
        ),
    ],
)
def test_a_wrong_property_of_listeners_is_named(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_texts(texts)

    assert message in str(refused.value)


def test_the_example_of_the_readme_is_a_configuration_without_an_open_listener() -> None:
    readme = (Path(__file__).resolve().parents[3] / "README.md").read_text("utf-8")
    (example,) = re.findall(r"```properties\n(.*?)```", readme, re.DOTALL)

    config = BrokerConfig.from_texts(parse_properties(example))

    local, outside = config.resolved_listeners()
    assert not local.security_protocol.has_tls
    assert outside.security_protocol.has_tls
    assert config.ssl_client_auth == "required"


def test_a_text_with_a_listeners_prefix_holds_for_that_listener_only() -> None:
    of_all = BrokerConfig.from_texts(
        {
            "ssl.keystore.location": "/all.pem",
            "ssl.keystore.password": "one",
            "listener.name.outside.ssl.keystore.location": "/outside.pem",
        }
    )

    outside = of_all.for_listener("OUTSIDE")
    assert outside.ssl_keystore_location == "/outside.pem"
    assert outside.ssl_keystore_password == "one"
    assert of_all.for_listener("INSIDE").ssl_keystore_location == "/all.pem"


def test_a_prefix_of_a_listener_that_does_not_exist_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    BrokerConfig.from_texts(
        {
            "listener.name.plaintext.ssl.client.auth": "none",
            "listener.name.controller.ssl.client.auth": "none",
            "controller.listener.names": "CONTROLLER",
            "listener.name.inside.ssl.client.auth": "required",
        }
    )

    assert caplog.messages == ["listener.name.inside: listeners has no such listener, ignored"]


# Unknown names.


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("log.segmnt.bytes", "did you mean log.segment.bytes?"),
        ("log.cleaner.thread", "did you mean log.cleaner.threads?"),
        ("advertised.listener", "did you mean advertised.listeners?"),
        ("nonsense", "nonsense: unknown property, ignored"),
    ],
)
def test_an_unknown_property_warns_and_does_not_stop_the_start(
    name: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    BrokerConfig.from_texts({name: "1"})

    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert hint in record.getMessage()


# Sources.


def test_the_command_line_wins_over_the_environment_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nnum.partitions=1\nlog.dirs=/a\n")

    texts = read_sources(
        file=path,
        environment={"KAFKA_NUM_PARTITIONS": "2", "KAFKA_LOG_DIRS": "/b", "HOME": "/root"},
        overrides=["log.dirs=/c"],
    )

    assert texts == {"node.id": "1", "num.partitions": "2", "log.dirs": "/c"}


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a\t=\tb", "a", "b"),
        ("  a=b", "a", "b"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a=b=c", "a", "b=c"),
        ("a==b", "a", "=b"),
        ("a: =b", "a", "=b"),
        ("a=b#c", "a", "b#c"),
        (r"a\ b=c", "a b", "c"),
        (r"a\=b=c", "a=b", "c"),
        (r"a\:b:c", "a:b", "c"),
        (r"a\\=b", "a\\", "b"),
        (r"a=\u00e4\t\n\q", "a", "ä\t\nq"),
        (r"a=\ud83d\ude00", "a", "\N{GRINNING FACE}"),
        ("a=b\\\n    c", "a", "bc"),
        ("a=b\\\r\n  c", "a", "bc"),
        ("a=b\\\\\nx=y", "a", "b\\"),
        ("a=b\\", "a", "b"),
        ("# c\n! d\n\n  # e\na=b", "a", "b"),
        ("a=1\na=2", "a", "2"),
        ("=b", "", "b"),
    ],
)
def test_properties_are_parsed_as_java_parses_them(line: str, name: str, value: str) -> None:
    assert parse_properties(line)[name] == value


@pytest.mark.parametrize("text", ["# c\n\na=b\\\n  c\nx=\\u12", "#\r\n\r\na=\\\r\nb\r\nx\\u12=y"])
def test_a_malformed_escape_names_the_file_and_the_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(text.encode())

    with pytest.raises(
        ConfigError, match=r"server\.properties: line 5: malformed \\u escape \\u12"
    ):
        read_sources(file=path, environment={}, overrides=[])


def test_a_line_of_nothing_but_a_continuation_is_no_property() -> None:
    assert parse_properties("\\\n\na=b\n  \\") == {"a": "b"}


def test_a_missing_file_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.properties: No such file or directory"):
        read_sources(file=tmp_path / "absent.properties", environment={}, overrides=[])


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_CLEANER_THREADS", "log.cleaner.threads"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_ADVERTISED_LISTENERS", "advertised.listeners"),
    ],
)
def test_variables_are_mapped_as_the_official_image_maps_them(variable: str, name: str) -> None:
    assert property_of_variable(variable) == name


def test_the_official_images_own_variables_are_no_properties() -> None:
    environment = {
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_OPTS": "-Dx",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
        "KAFKA_JMX_PORT": "9",
        "KAFKA_NODE_ID": "3",
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    }

    assert from_environment(environment) == {
        "cluster.id": "4L6g3nShT-eMCtK--X86sw",
        "node.id": "3",
    }


@pytest.mark.parametrize("override", ["novalue", "=x", ""])
def test_an_override_without_a_name_and_a_value_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="write it as name=value"):
        parse_overrides([override])


def test_every_property_is_set_by_the_variable_of_the_official_image() -> None:
    assert property_of_variable("KAFKA_A___B_C__D") == "a-b.c_d"
    for declared, _ in BrokerConfig().rows():
        name = declared.name.replace("_", "__").replace("-", "___").replace(".", "_")
        assert property_of_variable(f"KAFKA_{name.upper()}") == declared.name


@given(st.dictionaries(st.text("ab=: \\#!\tä\n", min_size=1), st.text("ab=: \\#!\tä\n")))
def test_escaped_properties_are_read_back(texts: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        special = {"\n": "\\n", "\t": "\\t"}
        return "".join(special.get(c, "\\" + c if c in "=: \\#!" else c) for c in text)

    written = "".join(f"{escaped(name)}={escaped(value)}\n" for name, value in texts.items())

    assert parse_properties(written) == texts


def test_every_value_that_is_wrong_has_a_line_of_the_error() -> None:
    bad = {"num.partitions": "0", "log.segment.bytes": "x", "log.cleaner.threads": "many"}

    with pytest.raises(ConfigError) as error:
        BrokerConfig.from_texts({"log.dirs": "/data", "node.id": "3", **bad})

    assert [line.split()[5].rstrip(":") for line in error.value.problems] == list(bad)
