"""The answer of every API that can name a topic, for a mirror: what would change its records is refused.

The requests are those of `test_internal_topics.py`, which holds them against the table of APIs, so a
new API is asked here too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.messages import alter_configs, create_topics, delete_topics, incremental_alter_configs
from protocol.messages.produce import ProduceResponse
from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from server.topics.mirrors import (
    ALTERS_DATA,
    COMPACTION,
    LINK,
    LOCAL,
    REFUSED,
    SOURCE_ID,
    refusal_on_mirror,
    without_own,
)
from server.topics.topic import TopicRefused
from storage.formats.log_config import LogConfig
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    only_produced,
    produce_request,
    serving_broker,
)
from tests.harness.transaction_requests import add, described, end, init, until_state
from tests.server.coordination.transactions.test_joining import produce as produce_in_transaction
from tests.server.handlers.test_internal_topics import BY_ID, REQUESTS, answer, answer_by_id

MIRROR = "mirror"
PROPERTIES = {LINK: "dr", SOURCE_ID: "hupMRyNlRUanRQMZWmQ0dw", "cleanup.policy": "compact"}
REPLACES = ApiKey.ALTER_CONFIGS
"""Replacing all properties would remove the source's `cleanup.policy`."""
TOPIC_RESOURCE, SET, DELETE = 2, 0, 1


async def mirror(served: ServedBroker) -> None:
    await served.broker.topics.create(MIRROR, partitions_count=1, overrides=PROPERTIES)


@pytest.mark.parametrize("key", sorted(REQUESTS), ids=lambda key: key.name)
async def test_only_what_would_change_the_records_is_refused(tmp_path: Path, key: ApiKey) -> None:
    async with serving_broker(tmp_path) as served:
        await mirror(served)
        log = served.log(MIRROR)
        codes = await answer(served, key, MIRROR)
        assert ("POLICY_VIOLATION" in codes) == (key in {*REFUSED, REPLACES}), codes
        assert log.log_end_offset == log.log_start_offset == 0
        found = served.broker.topics.get(MIRROR)
        assert found is not None
        assert len(found.partitions) == 1
        if key in BY_ID:
            codes = await answer_by_id(served, key, found.id)
            assert ("POLICY_VIOLATION" in codes) == (key in {*REFUSED, REPLACES}), codes


def test_the_table_of_refusals_has_only_apis_that_are_asked_here() -> None:
    assert REFUSED.keys() <= REQUESTS.keys()


@pytest.mark.parametrize("key", sorted(REFUSED), ids=lambda key: key.name)
def test_every_refusal_names_the_link_and_the_command(key: ApiKey) -> None:
    config = LogConfig.from_overrides(PROPERTIES, LogConfig())
    refused = refusal_on_mirror(key, MIRROR, config)
    assert refused is not None
    assert "its link dr" in refused.message
    assert refused.message.endswith("kompakt replica promote mirror makes it an ordinary topic.")
    assert refusal_on_mirror(key, MIRROR, LogConfig()) is None


async def test_a_producer_reads_which_link_it_is_and_what_to_do(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await mirror(served)
        request = produce_request(MIRROR, batch_of(1))
        refused = only_produced(await served.call(request, 9, ProduceResponse))
        assert refused.error_message == (
            "Topic mirror is a mirror: only its link dr writes to it. kompakt replica promote mirror"
            " makes it an ordinary topic."
        )


async def alter(served: ServedBroker, name: str, value: str | None, operation: int = SET) -> Any:
    module = incremental_alter_configs
    config = module.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = module.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=MIRROR, configs=(config,)
    )
    request = module.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    response = await served.call(request, 1, module.IncrementalAlterConfigsResponse)
    return response.responses[0]


@pytest.mark.parametrize("name", sorted(ALTERS_DATA))
async def test_properties_that_decide_about_records_are_the_sources(
    tmp_path: Path, name: str
) -> None:
    async with serving_broker(tmp_path) as served:
        await mirror(served)
        value = {
            "cleanup.policy": "delete",
            "compression.type": "gzip",
            "message.timestamp.type": "LogAppendTime",
        }.get(name, "1000")
        refused = await alter(served, name, value)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert name in refused.error_message


@pytest.mark.parametrize("name", [LINK, SOURCE_ID, LOCAL])
@pytest.mark.parametrize("operation", [SET, DELETE])
async def test_only_a_link_makes_or_ends_a_mirror(
    tmp_path: Path, name: str, operation: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await mirror(served)
        await alter(served, "segment.ms", "60000")  # So that mirror.local.properties has a value.
        refused = await alter(served, name, "other" if operation == SET else None, operation)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert "Only a link" in refused.error_message


async def test_other_properties_may_change(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await mirror(served)
        assert (await alter(served, "segment.ms", "60000")).error_code == ErrorCode.NONE
        assert (await alter(served, COMPACTION, "on")).error_code == ErrorCode.NONE
        found = served.broker.topics.get(MIRROR)
        assert found is not None
        assert found.config.is_compacted


async def test_replacing_all_properties_keeps_it_a_mirror(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await mirror(served)
        resource = alter_configs.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=MIRROR,
            configs=(alter_configs.AlterableConfig(name="cleanup.policy", value="compact"),),
        )
        request = alter_configs.AlterConfigsRequest(resources=(resource,), validate_only=False)
        response = await served.call(request, 2, alter_configs.AlterConfigsResponse)
        assert response.responses[0].error_code == ErrorCode.NONE
        found = served.broker.topics.get(MIRROR)
        assert found is not None
        assert found.config.mirror_link == "dr"


async def test_a_client_cannot_create_a_mirror(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        asked = create_topics.CreatableTopic(
            name="own",
            num_partitions=1,
            replication_factor=1,
            assignments=(),
            configs=(create_topics.CreatableTopicConfig(name=LINK, value="dr"),),
        )
        request = create_topics.CreateTopicsRequest(topics=(asked,), timeout_ms=1000)
        response = await served.call(request, 7, create_topics.CreateTopicsResponse)
        assert response.topics[0].error_code == ErrorCode.POLICY_VIOLATION


async def test_a_mirror_is_not_deleted_by_its_id_either(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await mirror(served)
        found = served.broker.topics.get(MIRROR)
        assert found is not None
        request = delete_topics.DeleteTopicsRequest(
            topics=(delete_topics.DeleteTopicState(topic_id=found.id),), timeout_ms=1000
        )
        response = await served.call(request, 6, delete_topics.DeleteTopicsResponse)
        assert response.responses[0].error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("version", [3, 11, 12])
async def test_a_transaction_ends_although_its_producer_tried_to_write_to_a_mirror(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await mirror(served)
        await served.create("own")
        producer = await init(served)
        if version < 12:
            await add(served, producer, {"own": (0,)})
            refused = {(MIRROR, 0): ErrorCode.POLICY_VIOLATION}
            assert await add(served, producer, {MIRROR: (0,)}) == refused
        await produce_in_transaction(served, producer, 0, topic="own", version=version)
        answered = await produce_in_transaction(served, producer, 0, topic=MIRROR, version=version)
        assert answered == [ErrorCode.POLICY_VIOLATION]
        assert [each.topic for each in (await described(served)).topics] == ["own"]
        await end(served, producer)
        await until_state(served, "CompleteCommit")


async def test_a_transaction_ends_whose_topic_was_replaced_by_a_mirror(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create(MIRROR)
        producer = await init(served)
        await add(served, producer, {MIRROR: (0,)})
        await served.broker.topics.delete(topic)
        await mirror(served)
        await end(served, producer)
        await until_state(served, "CompleteCommit")
        assert served.log(MIRROR).log_end_offset == 0


async def test_a_mirror_refuses_the_same_after_a_restart_and_nothing_once_it_is_promoted(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await mirror(served)
    async with serving_broker(tmp_path) as served:
        for key in sorted(REFUSED):
            assert "POLICY_VIOLATION" in await answer(served, key, MIRROR), key
        # As the source's policy would be: DeleteRecords refuses topics that are only compacted.
        altered = await served.broker.topics.alter(
            MIRROR, lambda old, _: {**without_own(old), "cleanup.policy": "delete"}
        )
        assert not isinstance(altered, TopicRefused)
        for key in sorted(REFUSED, key=lambda key: key is ApiKey.DELETE_TOPICS):
            assert "POLICY_VIOLATION" not in await answer(served, key, MIRROR), key
        assert served.broker.topics.get(MIRROR) is None
