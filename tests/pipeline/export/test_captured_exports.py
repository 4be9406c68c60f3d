"""Exports of what Debezium captures of a database equal the database's own tables.

`tests/pipeline/tables/test_captured_changes.py` does the same with tables on Spark, and more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.spark.jars import JarsUnavailable
from tests.harness.change_capture import CONNECTOR, ChangeCapture, change_capture
from tests.harness.exported_log import FORMATS
from tests.harness.group_run import until
from tests.harness.postgres import PostgresUnavailable
from tests.harness.shop_database import ShopDatabase, maybe, price, text
from tests.harness.typed_commands import TypedCommands
from tests.pipeline.captured_table import CapturedTable

CHANGES = int(os.environ.get("KOMPAKT_CAPTURED_CHANGES", "50000"))
TABLES = ("customers", "orders", "articles")

pytestmark = pytest.mark.crash


def test_exports_equal_the_tables_of_the_database(tmp_path: Path) -> None:
    """Across kills of the connector and the broker, new columns, and passes."""
    try:
        with change_capture(tmp_path) as capture, capture.postgres.connect() as connection:
            shop = ShopDatabase(connection, seed=1, changes=CHANGES)
            tables = [CapturedTable(capture, shop.tables[name], tmp_path) for name in TABLES]
            shop.change(CHANGES // 10)
            capture.capture(TABLES)
            capture.until_caught_up()
            change_under_a_kill(capture, shop, capture.worker.kill, capture.worker.start)
            compact(capture, tables)
            add_columns(shop)
            change_under_a_kill(capture, shop, capture.broker.kill, capture.broker.start)
            for kind in FORMATS:
                for table in tables:
                    table.refute_difference_of_export(kind)
            shop.change(CHANGES // 10)
            capture.until_caught_up()
            compact(capture, tables)
            for table in tables:
                table.refute_difference_of_export("iceberg")
    except (JarsUnavailable, PostgresUnavailable) as missing:
        pytest.skip(str(missing))


def change_under_a_kill(
    capture: ChangeCapture,
    shop: ShopDatabase,
    kill: Callable[[], None],
    start: Callable[[], None],
) -> None:
    before = capture.worker.source_position(CONNECTOR)
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(shop.change, CHANGES * 4 // 10)
        until(
            "Debezium moves on",
            lambda: capture.worker.source_position(CONNECTOR) != before,
            capture.worker.tail,
        )
        kill()
        start()
        work.result()
    capture.until_caught_up()


def add_columns(shop: ShopDatabase) -> None:
    shop.alter("ALTER TABLE customers ADD COLUMN city text NOT NULL DEFAULT 'Bern'")
    shop.tables["customers"].columns["city"] = text
    shop.alter("ALTER TABLE orders ADD COLUMN discount numeric(5, 2)")
    shop.tables["orders"].columns["discount"] = maybe(price)


def compact(capture: ChangeCapture, tables: list[CapturedTable]) -> None:
    for table in tables:
        TypedCommands(capture.broker).told("compact", "now", table.topic)
