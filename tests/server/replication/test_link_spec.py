"""What a link may say, and what of it is shown."""

from __future__ import annotations

import json

import pytest

from server.replication.link_spec import BadLink, parse_link

FINE = {"bootstrap": "a:9092,b:9093", "topics": ["t"], "patterns": ["u.*"]}


def parsed(**changed: object) -> str:
    return parse_link("dr", json.dumps(FINE | changed)).stored()


def test_it_is_stored_as_it_was_given() -> None:
    spec = parse_link("dr", json.dumps(FINE | {"compaction": "on"}))
    assert parse_link("dr", spec.stored()) == spec
    assert parse_link("dr", spec.paused(True).stored()).is_paused
    assert spec.group == "__mirror.dr"


def test_passwords_are_stored_and_never_shown() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="u" password="s3c";'
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
    }
    spec = parse_link("dr", json.dumps(FINE | {"properties": properties}))
    assert "s3c" in spec.stored()
    assert "s3c" not in repr(spec)
    assert "s3c" not in json.dumps(spec.shown())
    assert spec.access().security_protocol == "SASL_PLAINTEXT"


def test_topics_by_name_and_by_pattern_but_not_the_sources_own() -> None:
    spec = parse_link("dr", json.dumps(FINE | {"patterns": [".*s"]}))
    assert [
        name for name in ("t", "users", "user", "__consumer_offsets") if spec.follows(name)
    ] == [
        "t",
        "users",
    ]


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"topics": [], "patterns": []}, "names no topic"),
        ({"topics": ["__consumer_offsets"]}, "kompakt standby"),
        ({"patterns": ["("]}, "pattern"),
        ({"compaction": "later"}, "not one of off, on"),
        ({"bootstrap": "a:b"}, "not host:port"),
        ({"properties": {"security.protocol": "CARRIER"}}, "security.protocol=CARRIER"),
        ({"topic": ["t"]}, "unknown field"),
        ({"topics": "t"}, "Expected `array`"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(
    changed: dict[str, object], fault: str
) -> None:
    with pytest.raises(BadLink, match=fault):
        parsed(**changed)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 101, "é"])
def test_a_name_is_a_word(name: str) -> None:
    with pytest.raises(BadLink, match="no name of a link"):
        parse_link(name, json.dumps(FINE))


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(BadLink, match="link dr"):
        parse_link("dr", b"\xff{")
