"""The settings of a topic that have no effect."""

from __future__ import annotations

import pytest

from storage.formats.config_property import ConfigError
from storage.formats.log_config import LogConfig

DEFAULTS = LogConfig()


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_throttled_replicas_are_all_of_them_or_a_list(role: str) -> None:
    name = f"{role}.replication.throttled.replicas"
    for fine in ((), ("*",), ("0:1",), ("0:1", "12:3")):
        config = LogConfig.from_overrides({name: ", ".join(fine)}, DEFAULTS)
        assert getattr(config, name.replace(".", "_")) == fine
    for wrong in ("foo", "0", "0:1,*", "0:1:2", "0:1,"):
        with pytest.raises(ConfigError, match=f"{role}.replication.throttled.replicas: must be"):
            LogConfig.from_overrides({name: wrong}, DEFAULTS)


def test_tiered_storage_is_not_promised() -> None:
    with pytest.raises(ConfigError, match=r"value true for configuration remote\.storage\.enable"):
        LogConfig.from_overrides({"remote.storage.enable": "true"}, DEFAULTS)
