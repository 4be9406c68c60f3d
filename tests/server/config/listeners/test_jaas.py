"""The parser of `sasl.jaas.config`, with the values that Kafka's JaasContextTest accepts and refuses."""

from __future__ import annotations

import pytest

from server.config.listeners.jaas import JaasError, parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{MODULE} required;", {}),
        (f"{MODULE} REQUIRED ;", {}),
        (f'{MODULE} required user_alice="secret";', {"user_alice": "secret"}),
        (f"{MODULE} required user_alice=secret;", {"user_alice": "secret"}),
        (f"{MODULE} required user_alice='se;c\"ret';", {"user_alice": 'se;c"ret'}),
        (f'{MODULE} required\n a="1"\n b="2" ;', {"a": "1", "b": "2"}),
        (f'{MODULE} required a="";', {"a": ""}),
        (f'{MODULE} required a="x=y;z";', {"a": "x=y;z"}),
        (f'{MODULE} required a="q\\"q\\\\q\\tq\\101";', {"a": 'q"q\\q\tqA'}),
        (f'{MODULE} required // of the demo\n a="1" /* and\nmore */ b=2;', {"a": "1", "b": "2"}),
        (f"{MODULE} sufficient a-b_c$d=e.f;", {"a-b_c$d": "e.f"}),
        (f'{MODULE} required user_jürgen="ß";', {"user_jürgen": "ß"}),
    ],
)
def test_a_module_with_its_options(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.name, module.options) == (MODULE, options)
    assert module.short_name == "PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "Login module not specified in JAAS config"),
        ("   /* nothing */ ", "Login module not specified in JAAS config"),
        (MODULE, "Login module control flag not specified in JAAS config"),
        (f"{MODULE} perhaps;", "Invalid login module control flag in JAAS config"),
        (f"{MODULE} ;", "Invalid login module control flag in JAAS config"),
        (f"{MODULE} required", "JAAS config entry not terminated by semi-colon"),
        (f"{MODULE} required a=b", "JAAS config entry not terminated by semi-colon"),
        (f"{MODULE} required a;", "Value not specified for key 'a' in JAAS config"),
        (f"{MODULE} required a=;", "Value not specified for key 'a' in JAAS config"),
        (f"{MODULE} required a b;", "Value not specified for key 'a' in JAAS config"),
        (f"{MODULE} required =b;", "Value not specified for key '=' in JAAS config"),
        (f'{MODULE} required a="b;', "JAAS config has an unexpected character at position 67"),
        (
            f"{MODULE} required; {MODULE} required;",
            "JAAS config property contains 2 login modules, should be 1 module",
        ),
    ],
)
def test_other_texts_are_refused(text: str, error: str) -> None:
    with pytest.raises(JaasError) as refused:
        parse_jaas(text)
    assert str(refused.value) == error


def test_passwords_do_not_show() -> None:
    assert "secret" not in repr(parse_jaas(f"{MODULE} required user_alice=secret;"))
    for text in (f"{MODULE} required user_alice=secret", f'{MODULE} required a="secret'):
        with pytest.raises(JaasError) as refused:
            parse_jaas(text)
        assert "secret" not in str(refused.value)
