"""Kafka's own command-line tools print against us what they print against Apache Kafka 4.3.

The transcripts beside this file were recorded with a Kafka 4.3.0 broker, by
`tests/harness/tool_transcript.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.spark.jars import JarsUnavailable
from protocol.wire.api_keys import APIS, INTERNAL_APIS
from tests.harness.clients import create_topic
from tests.harness.kafka_tools import KafkaTools
from tests.harness.tool_transcript import read_steps, run_step

API_LINE = re.compile(r"^\t(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[usable: (\d+)\]", re.MULTILINE)
TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.fixture(scope="module")
def tools(bootstrap: str) -> Iterator[KafkaTools]:
    try:
        running = KafkaTools(bootstrap)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with running:
        yield running


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_tools_say_what_they_say_to_apache_kafka(
    path: Path, tools: KafkaTools, bootstrap: str
) -> None:
    steps = read_steps(path)
    assert steps

    for step in steps:
        assert run_step(step, tools, bootstrap) == step


def test_the_versions_that_the_tool_finds_are_those_served_and_its_client_knows_them_all(
    tools: KafkaTools,
) -> None:
    found = API_LINE.findall(tools.run("kafka-broker-api-versions").output)

    assert [(name, int(key), int(low), int(high or low)) for name, key, low, high, _ in found] == [
        (api.name, api.key, api.version_min, api.version_max)
        for api in APIS.values()
        if api.key not in INTERNAL_APIS
    ]
    assert all(usable == (high or low) for _, _, low, high, usable in found)


def test_kafkas_tool_sets_values_with_commas_in_brackets(tools: KafkaTools, bootstrap: str) -> None:
    create_topic(bootstrap, "archive", config={"cleanup.policy": "compact"})
    of_topic = ("--entity-type", "topics", "--entity-name", "archive")
    values = {
        "compaction.thinning": "all for 1h,one per 1h for 1d",
        "compaction.window": "Mon-Fri 22:00-06:00,Sat-Sun 00:00-24:00",
    }
    added = ",".join(f"{name}=[{value}]" for name, value in values.items())

    changed = tools.run("kafka-configs", *of_topic, "--alter", "--add-config", added)

    assert changed.code == 0, changed
    shown = tools.run("kafka-configs", *of_topic, "--describe").output
    for name, value in values.items():
        assert f"{name}={value} sensitive=false" in shown
