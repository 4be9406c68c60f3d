"""`ssl.principal.mapping.rules`: makes a user's name of the subject of a client's certificate.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT

The first rule whose pattern matches the whole subject gives the name: the replacement, in which $1 is
the first group, in lower case with L and in upper case with U. DEFAULT gives the subject as it is.

The client writes the subject, so RE2 matches it, in linear time: with Java's or Python's expressions a
subject of 40 characters could hold the loop for hours. RE2 agrees with Java on what rules use. Rules
with lookarounds, backreferences or possessive quantifiers, which it does not have, are refused.

Source: KIP-371; Apache Kafka, SslPrincipalMapper.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from storage.formats.config_property import ConfigError

NAME = "ssl.principal.mapping.rules"
RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,\s*|$)"
)
REPETITION_TOO_LONG = re.compile(r"(?<!\\)(?:\\\\)*\{[0-9,]{5,}\}")
"""RE2 reads such a repetition as text, where Java refuses it; it refuses others beyond 1000 itself."""
SUBJECT_CHARACTERS_MAX = 8192
"""The replacement searches a subject once for each match, so the time may grow with its square."""
REFERENCE = re.compile(r"\\(?P<escaped>.)|\$(?P<number>[0-9]{1,9})", re.DOTALL)


class NoMatchingRule(ValueError):
    """No rule applies to the subject of a certificate, so its owner has no name here."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: Any
    """Compiled by RE2, which has no types; None for DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if len(subject) > SUBJECT_CHARACTERS_MAX:
            raise NoMatchingRule(
                f"the subject is longer than {SUBJECT_CHARACTERS_MAX} characters: {len(subject)}"
            )
        if self.pattern.fullmatch(subject) is None:
            return None
        name: str = self.pattern.sub(self._replaced, subject)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)

    def _replaced(self, found: Any) -> str:
        groups = self.pattern.groups
        return REFERENCE.sub(lambda each: _expanded(each, found, groups), self.replacement)


@dataclass(frozen=True, slots=True)
class PrincipalMapping:
    """Parsed rules."""

    rules: tuple[_Rule, ...]

    @classmethod
    def parse(cls, text: str) -> PrincipalMapping:
        """Returns the rules in `text`.

        Raises:
            ConfigError: a rule is malformed, or its pattern is no regular expression.
        """
        rules: list[_Rule] = []
        text, position = text.strip(), 0
        while position < len(text):
            found = RULE.match(text, position)
            if found is None:
                raise ConfigError(
                    f"{NAME}: {text[position:]} is not a rule; write DEFAULT or"
                    " RULE:pattern/replacement/ with L or U behind it"
                )
            rules.append(_rule(found))
            position = found.end()
        return cls(tuple(rules) or (_Rule(None),))

    def name_of(self, subject: str) -> str:
        """Returns the user's name for a subject. Raises NoMatchingRule."""
        for rule in self.rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules matches {subject}")


def _rule(found: re.Match[str]) -> _Rule:
    if found["default"]:
        return _Rule(None)
    return _Rule(_compiled(found["pattern"]), found["replacement"], found["case"])


def _compiled(pattern: str) -> Any:
    """Returns the expression as RE2 compiles it. Raises ConfigError."""
    # Imported here because few brokers have rules, and a start should not pay for it.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        raise _refusal(pattern, error.args[0] if error.args else error) from None
    if REPETITION_TOO_LONG.search(pattern):
        raise _refusal(pattern, "a repetition is too long")
    return compiled


def _refusal(pattern: str, reason: object) -> ConfigError:
    text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return ConfigError(
        f"{NAME}: {pattern} is no regular expression: {text} (lookarounds, backreferences and"
        " possessive quantifiers are not supported)"
    )


def _expanded(each: re.Match[str], found: Any, groups: int) -> str:
    """Returns the text for a reference or an escaped character of a replacement.

    As in Kafka, $12 is the first group and a 2 if there are fewer than twelve groups, and a reference to
    a group that does not exist stands for itself.
    """
    if each["escaped"] is not None:
        return each["escaped"]
    digits, rest = each["number"], ""
    while len(digits) > 1 and int(digits) > groups:
        digits, rest = digits[:-1], digits[-1] + rest
    if int(digits) > groups:
        return each[0]
    return (found[int(digits)] or "") + rest
