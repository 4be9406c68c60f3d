"""A topic's overrides after each kind of change: set, delete, append, subtract."""

from __future__ import annotations

import pytest

from protocol.wire.error_codes import ErrorCode
from server.config.changes import (
    ConfigChange,
    Examined,
    Operation,
    examined,
    overrides_after,
)
from server.runtime.turns import Pace, Turns
from server.topics.topic import TopicRefused
from storage.formats.config_property import ConfigError
from storage.formats.log_config import LogConfig

SET, DELETE, APPEND, SUBTRACT = Operation
POLICY = "cleanup.policy"


def change(operation: int, name: str, value: str | None = None) -> ConfigChange:
    return ConfigChange(name=name, operation=operation, value=value)


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        pytest.param({}, SET, "compact", {POLICY: "compact"}, id="set"),
        pytest.param({POLICY: "delete"}, SET, "", {POLICY: ""}, id="set_to_nothing"),
        pytest.param({POLICY: "delete"}, DELETE, None, {}, id="back_to_the_default"),
        pytest.param({}, DELETE, None, {}, id="back_to_the_default_where_it_is"),
        pytest.param(
            {POLICY: "compact"}, APPEND, "delete", {POLICY: "compact,delete"}, id="append"
        ),
        pytest.param({}, APPEND, "compact", {POLICY: "delete,compact"}, id="append_to_default"),
        pytest.param(
            {POLICY: "compact"}, APPEND, "compact", {POLICY: "compact"}, id="append_twice"
        ),
        pytest.param({POLICY: ""}, APPEND, "compact", {POLICY: "compact"}, id="append_to_nothing"),
        pytest.param(
            {POLICY: "compact,delete"}, SUBTRACT, "compact", {POLICY: "delete"}, id="subtract"
        ),
        pytest.param({POLICY: "compact"}, SUBTRACT, "delete", {POLICY: "compact"}, id="not_there"),
        pytest.param({}, SUBTRACT, "delete", {POLICY: ""}, id="subtract_the_default"),
    ],
)
def test_a_change_gives_the_expected_overrides(
    before: dict[str, str], operation: Operation, value: str | None, after: dict[str, str]
) -> None:
    kept = {"segment.ms": "5"}
    found = overrides_after(kept | before, [change(operation, POLICY, value)], LogConfig())
    assert found == kept | after


def test_a_list_is_extended_from_the_brokers_default() -> None:
    defaults = LogConfig(cleanup_policy=("compact",))
    assert overrides_after({}, [change(APPEND, POLICY, "delete")], defaults) == {
        POLICY: "compact,delete"
    }


@pytest.mark.parametrize(
    ("operation", "name", "message"),
    [
        (APPEND, "segment.ms", "Can't APPEND to key segment.ms because its type is not LIST."),
        (SUBTRACT, "segment.ms", "Can't SUBTRACT to key segment.ms because its type is not LIST."),
        (APPEND, "no.such", "Unknown topic config name: no.such"),
    ],
)
def test_only_lists_are_extended(operation: Operation, name: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        overrides_after({}, [change(operation, name, "1")], LogConfig())
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            [change(SET, "a", "1"), change(DELETE, "a")],
            "Error due to duplicate config keys: a",
            id="a_property_twice",
        ),
        pytest.param(
            [change(SET, "a"), change(APPEND, "b"), change(DELETE, "c")],
            "Null value not supported for : a, b",
            id="no_value",
        ),
        pytest.param([change(4, "a", "1")], "Unknown operations type 4 for a", id="operation"),
    ],
)
async def test_changes_that_contradict_themselves_are_refused(
    changes: list[ConfigChange], message: str
) -> None:
    fault = await examined(changes, None, Pace(Turns()))
    assert isinstance(fault, TopicRefused)
    assert (fault.error_code, fault.message) == (ErrorCode.INVALID_REQUEST, message)


async def test_sound_changes_have_no_fault() -> None:
    changes = (change(SET, "a", ""), change(DELETE, "b"))
    found = await examined(changes, None, Pace(Turns()))
    assert found == Examined(changes=changes, unknown=())


async def test_setting_an_unknown_property_is_reported_and_deleting_it_is_fine() -> None:
    changes = [change(SET, "a", "1"), change(SET, "no", "1"), change(DELETE, "such", "1")]
    found = await examined(changes, {"a"}, Pace(Turns()))
    assert found == Examined(changes=(changes[0],), unknown=("no",))


async def test_a_message_does_not_list_every_wrong_name_of_a_hundred() -> None:
    changes = [change(SET, f"n{index}") for index in range(100)]
    fault = await examined(changes, None, Pace(Turns()))
    assert isinstance(fault, TopicRefused)
    assert fault.message.endswith(", n8, n9")
