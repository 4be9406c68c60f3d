"""Kafka's own command-line tools print against us what they print against Apache Kafka 4.3.

The transcripts beside this file were recorded with a Kafka 4.3.0 broker, by
`tests/harness/tool_transcript.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.jars import JarsUnavailable
from tests.harness.kafka_tools import KafkaTools
from tests.harness.tool_transcript import read_steps, run_step

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
