"""Reads the configuration from a file, the environment and the command line; later ones win.

    server.properties      Java's .properties syntax
    KAFKA_LOG_DIRS=/data   as Kafka's official container image maps it: _ is ., __ is _, ___ is -
    --override name=value  the command line

Source: java.util.Properties (load), apache/kafka docker/resources/common-scripts/configure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from storage.formats.config_property import ConfigError

ENVIRONMENT_PREFIX = "KAFKA_"
# Variables of the official image, and of Kafka's scripts, that are not properties.
NOT_PROPERTIES = re.compile(
    r"KAFKA_(VERSION|HOME|HEAP_OPTS|OPTS|LOG4J.*|JMX.*|JVM_PERFORMANCE_OPTS|GC_LOG.*|DEBUG|"
    r"DEBUG_.*|CLUSTER_ID|TOOLS_.*|MODE|CONFIG|NATIVE.*|PROMETHEUS_.*|SERVICE_.*|PORT|PORT_.*)"
)
UNDERSCORES = re.compile(r"_{1,3}")
MEANING = {"_": ".", "__": "_", "___": "-"}
ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
KEY_END = re.compile(r"(?<!\\)(?:\\\\)*(?P<separator>[ \t\f]*[=: \t\f][ \t\f]*)")


def read_sources(
    *, file: Path | None, environment: Mapping[str, str], overrides: Iterable[str]
) -> dict[str, str]:
    """Returns all configured texts by property name.

    Raises:
        ConfigError: the file cannot be read or parsed, or an override is not `name=value`.
    """
    texts = read_properties_file(file) if file is not None else {}
    texts.update(from_environment(environment))
    texts.update(parse_overrides(overrides))
    return texts


def read_properties_file(path: Path) -> dict[str, str]:
    """Returns the properties of a file. Raises ConfigError, which names the file."""
    try:
        return parse_properties(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_properties(text: str) -> dict[str, str]:
    """Parse Java's .properties syntax. If a name occurs twice, the last value wins.

    Raises:
        ConfigError: a `\\u` escape without four hexadecimal digits.
    """
    pairs = (_parse_line(line) for line in _logical_lines(text))
    return dict(pairs)


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that `KAFKA_...` variables (and the image's `CLUSTER_ID`) set."""
    texts = {
        property_of_variable(name): value
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIX) and not NOT_PROPERTIES.fullmatch(name)
    }
    cluster_id = environment.get("CLUSTER_ID") or environment.get("KAFKA_CLUSTER_ID")
    return {"cluster.id": cluster_id} | texts if cluster_id else texts


def property_of_variable(name: str) -> str:
    """Returns the property that a variable sets: KAFKA_LOG_CLEANER_THREADS is log.cleaner.threads."""
    bare = name.removeprefix(ENVIRONMENT_PREFIX).lower()
    return UNDERSCORES.sub(lambda found: MEANING[found[0]], bare)


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Returns the properties of `name=value` arguments. Raises ConfigError."""
    texts: dict[str, str] = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--override {override}: write it as name=value")
        texts[name.strip()] = value.strip()
    return texts


def _logical_lines(text: str) -> Iterator[str]:
    """Yields the lines without comments and blank ones; continued lines are joined."""
    natural = iter(re.split(r"\r\n|\r|\n", text))
    for line in natural:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            line = line[:-1] + next(natural, "").lstrip(" \t\f")
        yield line


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _parse_line(line: str) -> tuple[str, str]:
    end = KEY_END.search(line)
    if end is None:
        return _unescape(line), ""
    # Spaces may surround the = or :, but only one = or : separates.
    key, rest = line[: end.start("separator")], line[end.start("separator") :]
    value = re.sub(r"^[ \t\f]*[=:]?[ \t\f]*", "", rest, count=1)
    return _unescape(key), _unescape(value)


def _unescape(text: str) -> str:
    def meaning(found: re.Match[str]) -> str:
        letter = found[1]
        if len(letter) == 5:
            return chr(int(letter[1:], 16))
        if letter == "u":
            raise ConfigError(f"malformed \\u escape in {text}")
        return ESCAPED.get(letter, letter)

    return ESCAPE.sub(meaning, text)
