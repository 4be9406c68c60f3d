"""Tables of a database whose changes Debezium captures: at the end they equal the database's own.

All of it is real: PostgreSQL, Debezium in Kafka Connect, Avro with a registry, Spark, Delta (or
Iceberg, on Spark 4.1); and exports as Parquet, Delta and Iceberg. On the way the worker, the broker,
the registry, and an executor and the driver of a Spark cluster are killed, the topics are cleaned, a
table is truncated, and the schemas change in these ways. A stream then:

    a column is added that may be null    it is added
    a column is added with a default      refused; `batch` writes the table again
    NOT NULL is dropped                   nothing to do
    a column is dropped                   dropped with `--evolution all`, else refused
    an integer becomes a bigint           widened with `--evolution all`, else refused
    a column is renamed                   renamed with `--renamed` besides, else refused

Without `--renamed` a table that `batch` writes has null where a row has no newer event.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.offsets.cut import REWRITE_HINT
from pipeline.spark.jars import JarsUnavailable, has_iceberg
from tests.harness.change_capture import (
    CONNECTOR,
    RUNNING,
    TRUNCATED,
    ChangeCapture,
    change_capture,
)
from tests.harness.exported_log import FORMATS
from tests.harness.group_run import until
from tests.harness.postgres import PostgresUnavailable
from tests.harness.shop_database import ShopDatabase, large_number, maybe, moment, price, text
from tests.harness.spark_cluster import SparkCluster
from tests.harness.table_driver import Victim
from tests.harness.typed_commands import TypedCommands
from tests.pipeline.captured_table import CapturedTable, Ended, use_session
from tests.pipeline.table_kinds import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

CHANGES = int(os.environ.get("KOMPAKT_CAPTURED_CHANGES", "50000"))
TEXT_CHANGES = 600
TEXTS_CHANGE = """
UPDATE articles SET title = title || '!';
UPDATE articles SET description = repeat(md5(id::text || title), 100) WHERE random() < 0.3;
UPDATE articles SET title = title || '?' WHERE random() < 0.5;
DELETE FROM articles WHERE random() < 0.1;
UPDATE articles SET facts = '{"n": 1}' WHERE random() < 0.5;
"""
KEY_CHANGES = """
UPDATE articles SET id = gen_random_uuid()
WHERE id = (SELECT id FROM articles WHERE length(description) > 3000 LIMIT 1)
"""
SEED = int(os.environ.get("KOMPAKT_CAPTURED_SEED", "1"))
TABLES = ("customers", "orders", "articles")
APPLY = ("--on-truncate", "apply")
REFUSED_DEFAULT = (
    'kompakt: column city is new and has the default "Bern" in --value-schema, which earlier rows would'
    f" lack; {REWRITE_HINT}"
)
RENAMED = ("--renamed", "balance=credit")
ALL_HINT = ": --evolution all changes it"
REFUSED = "kompakt: the schema does not fit the table: column "


class Site:
    """The shop's database, the capture of its changes, and the tables that follow."""

    def __init__(
        self,
        capture: ChangeCapture,
        shop: ShopDatabase,
        folder: Path,
        pool: ThreadPoolExecutor,
        lake: Path | None,
    ) -> None:
        self.capture = capture
        self.shop = shop
        self._pool = pool
        found = {name: CapturedTable(capture, shop.tables[name], folder, lake) for name in TABLES}
        self.customers, self.orders, self.articles = found.values()
        self.tables = list(found.values())
        """Those of compacted topics."""
        self.carts = CapturedTable(capture, shop.tables[TRUNCATED], folder, lake)

    def change(self, share: float) -> None:
        """Make a share of all changes."""
        self.shop.change(int(CHANGES * share))

    def changing(self, share: float) -> Future[None]:
        """Begin to make a share of all changes, and wait until Debezium has written some of them."""
        before = self._position()
        work = self._pool.submit(self.change, share)
        until("Debezium moves on", lambda: self._position() != before, self.capture.worker.tail)
        return work

    def clean(self) -> Future[None]:
        """Begin to clean the topics."""
        return self._pool.submit(self._clean)

    def add_columns(self) -> None:
        """Change the schemas in the three ways that a stream follows."""
        customers, orders, _ = (self.shop.tables[name].columns for name in TABLES)
        self.shop.alter("ALTER TABLE customers ADD COLUMN city text NOT NULL DEFAULT 'Bern'")
        customers["city"] = text
        self.shop.alter("ALTER TABLE orders ADD COLUMN discount numeric(5, 2)")
        orders["discount"] = maybe(price)
        self.shop.alter("ALTER TABLE orders ALTER COLUMN placed_at DROP NOT NULL")
        orders["placed_at"] = maybe(moment)

    def change_columns(self) -> None:
        """Change the schemas in the three ways that a stream refuses."""
        customers, orders, articles = (self.shop.tables[name].columns for name in TABLES)
        self.shop.alter("ALTER TABLE customers RENAME COLUMN balance TO credit")
        customers["credit"] = customers.pop("balance")
        self.shop.alter("ALTER TABLE orders ALTER COLUMN quantity TYPE bigint")
        orders["quantity"] = large_number
        self.shop.alter("ALTER TABLE articles DROP COLUMN legacy_code")
        del articles["legacy_code"]

    def _position(self) -> object:
        return self.capture.worker.source_position(CONNECTOR)

    def _clean(self) -> None:
        for table in self.tables:
            TypedCommands(self.capture.broker).told("compact", "now", table.topic)


@pytest.fixture
def site(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    use_session(monkeypatch, session)
    try:
        with (
            change_capture(tmp_path) as capture,
            capture.postgres.connect() as connection,
            ThreadPoolExecutor(1) as pool,
        ):
            shop = ShopDatabase(connection, seed=SEED, changes=CHANGES)
            yield Site(capture, shop, tmp_path / "tables", pool, lake_of(session))
    except (JarsUnavailable, PostgresUnavailable) as missing:
        pytest.skip(str(missing))


def lake_of(session: SparkSession) -> Path | None:
    """Returns where the session's Iceberg tables are; None if it cannot write any."""
    if not has_iceberg():
        return None
    return Path(str(session.conf.get(f"spark.sql.catalog.{CATALOG}.warehouse")))


def test_tables_equal_those_of_the_database(site: Site, tmp_path: Path) -> None:
    site.change(0.1)
    site.capture.capture([*TABLES, TRUNCATED])
    site.capture.until_caught_up()
    kill_the_worker(site)
    kill_executor_and_driver(site, tmp_path / "cluster")
    follow_all(site)
    truncate(site)

    site.add_columns()
    kill_the_broker(site)
    follow_added_columns(site)

    kill_the_registry(site)
    refuse_changed_columns(site)
    follow_changed_columns(site)
    write_again_after_a_rename(site)

    truncate(site)
    site.capture.snapshot("customers")
    site.change(0.1)
    site.capture.until_caught_up()
    succeed(site.customers.stream(), site.orders.batch(), site.articles.batch())
    for table in site.tables:
        table.refute_difference()
        table.refute_difference_in_duckdb()
        for kind in FORMATS:
            table.refute_difference_of_export(kind)


def test_texts_that_the_database_does_not_send_again_are_filled_in(site: Site) -> None:
    """PostgreSQL has stored each one apart. Where it has not changed, Debezium has a placeholder."""
    articles = site.articles
    site.shop.alter("ALTER TABLE articles REPLICA IDENTITY DEFAULT")
    site.shop.change(TEXT_CHANGES)
    site.capture.capture(["articles"])
    for _ in range(3):
        site.shop.alter(TEXTS_CHANGE)
        site.capture.until_caught_up()
        succeed(articles.stream("--on-unavailable", "fill"))
        articles.refute_difference()

    refused = articles.stream()
    assert refused.code == 0, "there is nothing new"
    site.shop.alter(TEXTS_CHANGE)
    site.capture.until_caught_up()
    refused = articles.stream()
    assert refused.code == 1
    assert (
        "the database did not send the value of description, which had not changed" in refused.said
    )
    succeed(articles.stream("--on-unavailable", "fill"))
    # The event of the new key lacks the text, which is that of another key.
    site.shop.alter(KEY_CHANGES)
    site.capture.until_caught_up()
    refused = articles.stream("--on-unavailable", "fill")
    assert refused.code == 1
    assert (
        "description, which had not changed, and the event with it may be missing" in refused.said
    )


def kill_the_worker(site: Site) -> None:
    """While it works: it repeats what it had not noted as sent."""
    work = site.changing(0.3)
    site.capture.worker.kill()
    site.capture.worker.start()
    work.result()
    site.capture.until_caught_up()


def kill_the_broker(site: Site) -> None:
    """While it is written: the worker and the registry wait until it is there again."""
    work = site.changing(0.3)
    site.capture.broker.kill()
    site.capture.broker.start()
    work.result()
    site.capture.until_caught_up()


def kill_the_registry(site: Site) -> None:
    """When it is needed: at a new schema Debezium's task fails, and an operator restarts it."""
    capture = site.capture
    capture.registry.kill()
    site.change_columns()
    site.change(0.2)
    until("the task fails", lambda: capture.states() == ["RUNNING", "FAILED"], capture.worker.tail)
    refused = site.customers.stream()
    assert refused.code == 1
    assert f"{site.customers.topic}-key: the registry at {capture.registry.url}" in refused.said
    assert "cannot be reached: Connection refused" in refused.said

    capture.registry.start()
    capture.worker.restart_failed_tasks(CONNECTOR)
    until("the task works", lambda: capture.states() == RUNNING, capture.worker.tail)
    capture.until_caught_up()


def kill_executor_and_driver(site: Site, folder: Path) -> None:
    """Of a cluster, while they write micro-batches. The next stream continues from what is committed."""
    with SparkCluster(folder) as cluster:
        options = cluster.driver_options()
        with site.customers.driver(*options, offsets_per_batch=CHANGES // 50) as driver:
            driver.start()
            driver.wait_for_commits(1)
            cluster.kill_executor()
            driver.wait_for_commits(2)
            driver.kill(Victim.BOTH)


def truncate(site: Site) -> None:
    """Truncate a table while it changes, and follow it with the option that this needs."""
    followed = [site.carts.stream(*APPLY)]
    site.shop.truncate(TRUNCATED)
    site.change(0.02)
    site.shop.truncate(TRUNCATED)
    site.change(0.02)
    site.capture.until_caught_up()
    refused = site.carts.stream()
    assert refused.code == 1
    assert "--on-truncate apply deletes the rows" in refused.said
    succeed(*followed, site.carts.stream(*APPLY))
    site.carts.refute_difference()
    succeed(site.carts.batch(*APPLY))
    site.carts.refute_difference()


def follow_all(site: Site) -> None:
    """Follow all topics while they are cleaned."""
    cleaning = site.clean()
    succeed(*(table.stream() for table in site.tables))
    cleaning.result()
    for table in site.tables:
        table.refute_difference()


def follow_added_columns(site: Site) -> None:
    """The database has filled a default into rows of which no event tells: only `batch` has it."""
    cleaning = site.clean()
    refused = site.customers.stream()
    assert (refused.code, refused.said) == (1, REFUSED_DEFAULT)
    succeed(site.customers.batch(), site.orders.stream())
    cleaning.result()
    site.orders.refute_difference()
    site.customers.refute_difference()


def refuse_changed_columns(site: Site) -> None:
    refused = {
        site.customers: "balance is gone and credit is new: if that is its new name, say so by --renamed"
        f" balance=credit (values in Avro), and else {REWRITE_HINT}",
        site.orders: f"quantity is int in the table and bigint in the requested schema{ALL_HINT}",
        site.articles: "legacy_code is string in the table and missing in the requested schema"
        f"{ALL_HINT}",
    }
    for table, sentence in refused.items():
        ended = table.stream()
        assert (ended.code, ended.said) == (1, REFUSED + sentence)


def follow_changed_columns(site: Site) -> None:
    succeed(
        site.customers.stream("--evolution", "all", *RENAMED),
        site.orders.stream("--evolution", "all"),
        site.articles.stream("--evolution", "all"),
    )
    for table in site.tables:
        table.refute_difference()


def write_again_after_a_rename(site: Site) -> None:
    """The events from before it have the values under the old name."""
    succeed(site.customers.batch(*RENAMED))
    site.customers.refute_difference()
    succeed(site.customers.batch())
    found = site.customers.differences()
    assert {(each.column, each.found) for each in found} == {("credit", None)}


def succeed(*ended: Ended) -> None:
    assert {each.code for each in ended} == {0}, ended
