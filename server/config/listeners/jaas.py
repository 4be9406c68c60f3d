"""Parses the value of `sasl.jaas.config`: one login module of Java's authentication service (JAAS).

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="x";
    ^ module                                                 ^ flag   ^ options

A value is a word or is quoted; comments are those of Java.

Source: Apache Kafka, JaasConfig.java, JaasContext.java; java.io.StreamTokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

FLAGS = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<word>[\w.\-$\u00a0-\uffff]+)
    | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)'
    | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasError(Exception):
    """A value is not one login module. The text is Kafka's and contains no value of an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModule:
    """A login module with its options."""

    name: str
    """The name of its Java class."""
    options: Mapping[str, str] = field(repr=False)
    """Holds passwords: never log it."""

    @property
    def short_name(self) -> str:
        """The name of its class without the package."""
        return self.name.rpartition(".")[2]


def parse_jaas(text: str) -> LoginModule:
    """Returns the login module in `text`. Raises JaasError."""
    tokens = _tokens(text)
    modules = []
    while (name := next(tokens, None)) is not None:
        modules.append(_module(name, tokens))
    if not modules:
        raise JaasError("Login module not specified in JAAS config")
    if len(modules) != 1:
        count = len(modules)
        raise JaasError(f"JAAS config property contains {count} login modules, should be 1 module")
    return modules[0]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_sign: bool = False


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasError(f"JAAS config has an unexpected character at position {position}")
        position = found.end()
        if found["sign"]:
            yield _Token(found["sign"], is_sign=True)
        elif found["word"]:
            yield _Token(found["word"])
        elif (
            quoted := found["double"] if found["double"] is not None else found["single"]
        ) is not None:
            yield _Token(_ESCAPE.sub(_unescaped, quoted))


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)


def _module(name: _Token, tokens: Iterator[_Token]) -> LoginModule:
    flag = next(tokens, None)
    if flag is None:
        raise JaasError("Login module control flag not specified in JAAS config")
    if flag.is_sign or flag.text.upper() not in FLAGS:
        raise JaasError("Invalid login module control flag in JAAS config")
    options: dict[str, str] = {}
    for key in tokens:
        if key.is_sign and key.text == ";":
            return LoginModule(name=name.text, options=options)
        equals, value = next(tokens, None), next(tokens, None)
        is_assigned = equals is not None and equals.is_sign and equals.text == "="
        if key.is_sign or not is_assigned or value is None or value.is_sign:
            raise JaasError(f"Value not specified for key '{key.text}' in JAAS config")
        options[key.text] = value.text
    raise JaasError("JAAS config entry not terminated by semi-colon")
