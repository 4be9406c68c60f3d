"""What a link may say, and what of it is shown."""

from __future__ import annotations

import json
import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.replication.link_spec import (
    COMPACTIONS,
    RESYNCS,
    BadLink,
    LinkSpec,
    altered_link,
    parse_link,
    stored_link,
    without_secrets,
)

LETTERS = string.ascii_letters
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
    spec = parse_link("dr", json.dumps(FINE | {"patterns": [".*s", "a|b"]}))
    names = ("t", "users", "user", "__consumer_offsets", "a", "b", "ab")
    assert list(filter(spec.topic_filter(), names)) == ["t", "users", "a", "b"]


def test_topics_by_name_alone() -> None:
    spec = parse_link("dr", json.dumps(FINE | {"patterns": []}))
    assert list(filter(spec.topic_filter(), ("t", "u", "tt"))) == ["t"]


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"topics": [], "patterns": []}, "names no topic"),
        ({"topics": ["__consumer_offsets"]}, "kompakt standby"),
        ({"patterns": ["("]}, "pattern"),
        ({"compaction": "later"}, "not one of off, on"),
        ({"resync": "later"}, "not one of manual, auto"),
        ({"bootstrap": "a:b"}, "not host:port"),
        ({"bootstrap": ""}, "names no broker of its source"),
        ({"bootstrap": " , "}, "names no broker of its source"),
        ({"topics": [""]}, "the empty string is not allowed"),
        ({"topics": ["a/b"]}, "'a/b' contains"),
        ({"topics": ["t"] * 10_001}, "more than 10000 topics"),
        ({"patterns": ["t"] * 101}, "more than 100 patterns"),
        ({"patterns": ["a(?=b)"]}, r"pattern 'a\(\?=b\)'"),
        ({"patterns": ["(a{1000}){1000}"]}, "pattern"),
        ({"patterns": [rf"{each}\pL{{9}}" for each in LETTERS]}, "its patterns together"),
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


def test_no_pattern_holds_the_broker() -> None:
    spec = parse_link("dr", json.dumps(FINE | {"patterns": ["(a+)+b"]}))
    assert not spec.topic_filter()("a" * 249)


def test_a_link_whose_file_is_gone_can_still_be_read_from_the_store() -> None:
    properties = {"security.protocol": "SSL", "ssl.truststore.location": "/missing/ca.pem"}
    content = json.dumps(FINE | {"properties": properties})
    with pytest.raises(BadLink, match="/missing/ca"):
        parse_link("dr", content)
    assert stored_link("dr", content).properties == properties


def test_secrets_are_hidden_in_the_stored_form() -> None:
    spec = stored_link("dr", json.dumps(FINE | {"properties": {"ssl.key.password": "s3c"}}))
    shown = without_secrets(spec.stored())
    assert json.loads(shown)["properties"] == {"ssl.key.password": "<hidden>"}
    assert json.loads(shown)["bootstrap"] == spec.bootstrap
    for damaged in ("s3c", '"s3c"', '["s3c"]', '{"properties":"s3c"}', '{"secret":"s3c"}'):
        assert "s3c" not in without_secrets(damaged)


WORDS = st.text(alphabet="abz09._-", min_size=1, max_size=8).filter(
    lambda text: text.strip(".") and not text.startswith("__")
)
SPECS = st.builds(
    LinkSpec,
    name=WORDS,
    bootstrap=st.lists(WORDS.map("{}:9092".format), min_size=1, max_size=3).map(",".join),
    properties=st.dictionaries(st.text(), st.text(), max_size=4),
    topics=st.lists(WORDS, min_size=1, max_size=4).map(tuple),
    patterns=st.lists(st.sampled_from(["a.*", "b|c", r"\d+"]), max_size=3).map(tuple),
    groups=st.lists(st.sampled_from(["app-.*", "x"]), max_size=3).map(tuple),
    compaction=st.sampled_from(COMPACTIONS),
    resync=st.sampled_from(RESYNCS),
    bytes_per_second=st.none() | st.integers(1_024, 1 << 40),
    is_paused=st.booleans(),
)


@given(SPECS)
def test_every_link_is_read_as_it_was_stored(spec: LinkSpec) -> None:
    assert stored_link(spec.name, spec.stored()) == spec
    assert set(json.loads(without_secrets(spec.stored()))["properties"].values()) <= {"<hidden>"}


def test_groups_by_pattern_but_not_those_of_links() -> None:
    spec = parse_link("dr", json.dumps(FINE | {"groups": ["app.*", "__.*"]}))
    follows = spec.group_filter()
    assert follows is not None
    names = ("app", "app-1", "my-app", "__mirror.dr", "__other")
    assert list(filter(follows, names)) == ["app", "app-1", "__other"]
    assert parse_link("dr", json.dumps(FINE)).group_filter() is None


def test_a_change_leaves_the_rest_as_it_was() -> None:
    spec = parse_link("dr", json.dumps(FINE | {"groups": ["a"], "bytes_per_second": 5_000}))
    slower = altered_link(spec, '{"bytes_per_second": 2000}')
    assert slower == replace(spec, bytes_per_second=2_000)
    assert altered_link(slower, '{"bytes_per_second": null, "groups": []}') == replace(
        spec, bytes_per_second=None, groups=()
    )
    assert stored_link("dr", slower.stored()) == slower


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ('{"topics": ["u"]}', "'topics' cannot be changed: only bytes_per_second, groups"),
        ('{"bytes_per_second": 1023}', "at least 1024"),
        ('{"bytes_per_second": -1}', "at least 1024"),
        ('{"bytes_per_second": "fast"}', "Expected `int | null`"),
        ('{"groups": ["("]}', "group '('"),
        ("[]", "Expected `object`"),
        ("{", "truncated"),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_the_reason(changes: str, fault: str) -> None:
    with pytest.raises(BadLink) as refused:
        altered_link(parse_link("dr", json.dumps(FINE)), changes)
    assert fault in str(refused.value)
