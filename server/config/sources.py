"""Reads the configuration from a file, the environment and the command line; later ones win.

    server.properties      Java's .properties syntax
    KAFKA_LOG_DIRS=/data   as Kafka's official container image maps it: _ is ., __ is _, ___ is -
    --override name=value  the command line

Source: java.util.Properties (load), apache/kafka docker/resources/common-scripts/configure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
LINE_END = re.compile(r"\r\n|\r|\n")


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
        ConfigError: a `\\u` escape without four hexadecimal digits. The text names the line.
    """
    # Not imported at the top, because most brokers start without a file.
    from javaproperties import InvalidUEscapeError, KeyValue, parse

    texts: dict[str, str] = {}
    line = 1
    try:
        for element in parse(text):
            if isinstance(element, KeyValue):
                texts[element.key] = element.value
            line += len(LINE_END.findall(element.source))
    except InvalidUEscapeError as error:
        raise ConfigError(f"line {line}: malformed \\u escape {error.escape}") from None
    return texts


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
