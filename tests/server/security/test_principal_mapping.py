"""Mapping rules; the cases are those of Apache Kafka's SslPrincipalMapperTest and its documentation."""

from __future__ import annotations

import pytest

from server.security.principal_mapping import NoMatchingRule, PrincipalMapping
from storage.formats.config_property import ConfigError

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$"
    "/$1@$2/L,RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U"
    ",DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=HR,O=mycp,L=Fulton,ST=MD,C=US", "duke@hr"),
        ("cn=duke,ou=hr,dc=mycp,dc=com", "DUKE@HR"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_matching_rule_names_the_user(subject: str, name: str) -> None:
    assert PrincipalMapping.parse(RULES).name_of(subject) == name


@pytest.mark.parametrize(
    ("rule", "subject", "name"),
    [
        ("RULE:^CN=([^,]*),.*$/$1\\/x/", "CN=a,O=b", "a/x"),
        ("RULE:^CN=([^,]*),O=(.*)$/$2$3$12/", "CN=a,O=b", "b$3a2"),
        ("RULE:^CN=([^,]*).*$/$0/", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:.*/fixed/L", "CN=a", "fixedfixed"),
        ("", "CN=a", "CN=a"),
        ("DEFAULT", "CN=a", "CN=a"),
    ],
)
def test_replacements_read_as_in_java(rule: str, subject: str, name: str) -> None:
    assert PrincipalMapping.parse(rule).name_of(subject) == name


def test_a_pattern_must_match_the_whole_subject() -> None:
    with pytest.raises(NoMatchingRule, match=r"no rule .* matches CN=ab"):
        PrincipalMapping.parse("RULE:CN=a/x/").name_of("CN=ab")


@pytest.mark.parametrize(
    "text",
    [
        "deny",
        "RULE:^CN=(.*?)/$1/L,bad",
        "RULE:^CN=(.*?)$/$1",
        "RULE:^CN=(.*?)$/$1/X",
        "RULE:^CN=(/$1/",
        "DEFAULT RULE:a/b/",
    ],
)
def test_a_malformed_rule_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules: "):
        PrincipalMapping.parse(text)


@pytest.mark.parametrize(
    "pattern", ["a{99999999999999999999}", "a{1,99999999999}", "((a{1000}){1000}){1000}"]
)
def test_a_pattern_beyond_what_can_be_compiled_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="is no regular expression"):
        PrincipalMapping.parse(f"RULE:{pattern}/x/")


def test_a_reference_of_many_digits_is_the_first_group_and_the_rest() -> None:
    rules = PrincipalMapping.parse(f"RULE:^CN=(.*)$/$1{'2' * 5_000}/")

    assert rules.name_of("CN=a") == "a" + "2" * 5_000


@pytest.mark.parametrize(
    "pattern",
    ["^(([a-z])+.)+[A-Z]([a-z])+$", "^(a+)+$", "^CN=(x+x+)+y$", "^(.*?,?)*=z$", "(a|a?)+b"],
)
def test_a_rule_with_nested_quantifiers_ends_for_every_subject(pattern: str) -> None:
    """Python's and Java's expressions take hours for some of these."""
    rules = PrincipalMapping.parse(f"RULE:{pattern}/x/")

    for subject in ("a" * 5_000 + "!", "CN=" + "x" * 5_000, "a," * 2_500):
        with pytest.raises(NoMatchingRule):
            rules.name_of(subject)


@pytest.mark.parametrize(
    "pattern", ["^CN=(?!root)(.*)$", r"^CN=(.*),OU=\1$", "^CN=(.*+)$", "(?>a+)b"]
)
def test_a_pattern_that_needs_backtracking_is_refused_at_start(pattern: str) -> None:
    with pytest.raises(ConfigError, match="lookarounds, backreferences"):
        PrincipalMapping.parse(f"RULE:{pattern}/$1/")


def test_a_subject_that_is_too_long_has_no_name() -> None:
    with pytest.raises(NoMatchingRule, match="longer than 8192 characters: 8193"):
        PrincipalMapping.parse("RULE:.*/x/").name_of("a" * 8193)
    assert PrincipalMapping.parse("DEFAULT").name_of("a" * 8193) == "a" * 8193


def test_names_outside_ascii_are_mapped() -> None:
    assert PrincipalMapping.parse("RULE:^CN=(.*?),.*$/$1/U").name_of("CN=jürgen,O=b") == "JÜRGEN"
