"""The first section of docs/pipeline.md, typed: PostgreSQL, Debezium, a registry, Delta and Iceberg."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipeline.spark.jars import ALL_PINS, JarsUnavailable, jars
from tests.harness.broker_process import CHECKOUT
from tests.harness.change_capture import change_capture
from tests.harness.postgres import PostgresUnavailable
from tests.harness.shop_database import ShopDatabase
from tests.harness.typed_commands import TypedCommands, typed_lines

pytestmark = pytest.mark.spark

CHANGES = 2_000
SECONDS_MAX = 240
REGISTRY = "http://localhost:8081/apis/ccompat/v7"


def test_the_orders_of_a_shop_are_a_delta_table_and_an_iceberg_table(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "pipeline.md").read_text("utf-8")
    try:
        for pins in ALL_PINS:
            jars(pins)
        with change_capture(tmp_path) as capture, capture.postgres.connect() as connection:
            ShopDatabase(connection, seed=1, changes=CHANGES).change(CHANGES)
            capture.capture(["orders"])
            capture.until_caught_up()
            typed = TypedCommands(capture.broker)
            said = [
                typed.line(
                    line.replace(REGISTRY, capture.registry.url).replace(
                        ".venv/bin/python ", f"{sys.executable} "
                    ),
                    cwd=capture.broker.folder,
                    seconds_max=SECONDS_MAX,
                )
                for line in typed_lines(page.partition("\n## Install\n")[0])
            ]
            count = capture.postgres.value("SELECT count(*) FROM orders")
    except (JarsUnavailable, PostgresUnavailable) as missing:
        pytest.skip(str(missing))

    assert [each.returncode for each in said] == [0, 0, 0], said
    stream, export, read = (each.stdout for each in said)
    assert stream.splitlines()[0] == f"{count:,} keys in tables/orders"
    assert export.startswith(f"{count:,} keys in shop.orders: ")
    assert read == f"{count} orders\n"
