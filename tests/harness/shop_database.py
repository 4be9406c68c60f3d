"""A shop's database: four tables, and a random history of their rows from one seed.

    customers   a number as key; text, a decimal, a boolean
    orders      a key of two columns; text, a time, a floating-point number, an integer
    articles    a UUID as key; JSON, and texts that PostgreSQL stores apart (TOAST); it sends old rows
    carts       text; often truncated

Keys are taken from a fixed set, so a key is deleted and inserted again, and most records of a topic are
superseded. The model knows only which keys exist: what the rows say is the database's to tell.
"""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

Make = Callable[[random.Random], Any]
"""Makes a value of a column."""

DDL = """
CREATE TABLE customers (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    balance numeric(12, 2),
    is_active boolean NOT NULL
);
CREATE TABLE orders (
    customer_id bigint,
    number integer,
    note text,
    placed_at timestamptz NOT NULL,
    weight double precision,
    quantity integer NOT NULL,
    PRIMARY KEY (customer_id, number)
);
CREATE TABLE articles (
    id uuid PRIMARY KEY,
    title text NOT NULL,
    facts jsonb,
    description text,
    legacy_code text
);
CREATE TABLE carts (
    id integer PRIMARY KEY,
    items text
);
ALTER TABLE articles REPLICA IDENTITY FULL;
ALTER TABLE articles ALTER COLUMN description SET STORAGE EXTERNAL;
"""
WORDS = ("Zürich", "O'Brien", "", "naïve \\ path", "💡 lamp", 'a "quoted" word', "tab\there")
FLOATS = (0.0, -0.0, 1e-300, 0.1, float("inf"), float("-inf"), float("nan"))
BYTES_MAX = 12_000
"""Of a large text; from 2,000 bytes on PostgreSQL stores one apart."""
CHANGES_MAX = 20
"""Of one transaction."""


def text(rng: random.Random) -> str:
    return f"{rng.choice(WORDS)} {rng.randrange(10**6)}"


def maybe(make: Make) -> Make:
    return lambda rng: None if rng.random() < 0.2 else make(rng)


def amount(rng: random.Random) -> Decimal:
    return Decimal(rng.randrange(-(10**12) + 1, 10**12)) / 100


def price(rng: random.Random) -> Decimal:
    return Decimal(rng.randrange(10**5)) / 100


def moment(rng: random.Random) -> datetime:
    since = timedelta(microseconds=rng.randrange(10**16))
    return datetime(1969, 1, 1, tzinfo=UTC) + since * rng.randrange(1, 5)


def number(rng: random.Random) -> int:
    return rng.randrange(-(2**31), 2**31)


def large_number(rng: random.Random) -> int:
    return rng.randrange(-(2**63), 2**63)


def double(rng: random.Random) -> float:
    return rng.choice(FLOATS) if rng.random() < 0.1 else rng.uniform(-1e9, 1e9)


def flag(rng: random.Random) -> bool:
    return rng.random() < 0.5


def facts(rng: random.Random) -> Jsonb:
    return Jsonb({"colour": rng.choice(WORDS), "sizes": [rng.random(), None], "n": number(rng)})


def large_text(rng: random.Random) -> str:
    """Returns a text that cannot be compressed; a third of them is too large for a page."""
    size = rng.choice((20, 3_000, BYTES_MAX))
    return b64encode(rng.randbytes(size * 3 // 4)).decode()


@dataclass
class ShopTable:
    """One table: its columns as they are now, and which of its keys exist."""

    name: str
    key_columns: tuple[str, ...]
    key_of: Callable[[int], tuple[Any, ...]]
    columns: dict[str, Make]
    """Those that are not of the key."""
    weight: float
    """The share of the changes that are of this table."""
    large: frozenset[str] = frozenset()
    """Columns that few updates change."""
    live: set[int] = field(default_factory=set)


def shop_tables() -> dict[str, ShopTable]:
    """Returns the tables of `DDL`, without rows."""
    customers: dict[str, Make] = {"name": text, "balance": maybe(amount), "is_active": flag}
    orders: dict[str, Make] = {
        "note": maybe(text),
        "placed_at": moment,
        "weight": maybe(double),
        "quantity": number,
    }
    articles: dict[str, Make] = {
        "title": text,
        "facts": maybe(facts),
        "description": maybe(large_text),
        "legacy_code": maybe(text),
    }
    tables = (
        ShopTable("customers", ("id",), lambda at: (at * 10**12 - 7,), customers, 0.5),
        ShopTable("orders", ("customer_id", "number"), lambda at: divmod(at, 7), orders, 0.35),
        ShopTable(
            "articles",
            ("id",),
            lambda at: (UUID(int=at * 2**100 // 7 + at),),
            articles,
            0.1,
            frozenset({"description"}),
        ),
        ShopTable("carts", ("id",), lambda at: (at,), {"items": maybe(text)}, 0.05),
    )
    return {table.name: table for table in tables}


class ShopDatabase:
    """The tables in a database, changed by one connection."""

    def __init__(self, connection: psycopg.Connection[Any], *, seed: int, changes: int) -> None:
        """`changes` is about how many there will be: each key has some ten."""
        self.tables = shop_tables()
        self.changes_made = 0
        self._connection = connection
        self._rng = random.Random(seed)
        self._keys = max(100, changes // 20)
        connection.execute(DDL)

    def alter(self, sql: str) -> None:
        """Change the schema, in a transaction of its own."""
        self._connection.execute(sql)

    def change(self, count: int) -> None:
        """Change so many rows, in transactions of one to `CHANGES_MAX` changes."""
        end = self.changes_made + count
        while self.changes_made < end:
            size = min(self._rng.randint(1, CHANGES_MAX), end - self.changes_made)
            with self._connection.pipeline(), self._connection.transaction():
                for _ in range(size):
                    self._change_row()
            self.changes_made += size

    def truncate(self, name: str) -> None:
        """Remove all rows of a table at once."""
        self._connection.execute(f"TRUNCATE {name}".encode())
        self.tables[name].live.clear()

    def _change_row(self) -> None:
        tables = list(self.tables.values())
        (table,) = self._rng.choices(tables, [each.weight for each in tables])
        at, to = self._rng.randrange(self._keys), self._rng.randrange(self._keys)
        kind = self._rng.random()
        if at not in table.live:
            self._insert(table, at)
        elif kind < 0.22:
            self._delete(table, at)
        elif kind < 0.3 and to not in table.live:
            self._move(table, at, to)
        else:
            self._update(table, at)

    def _insert(self, table: ShopTable, at: int) -> None:
        row = {name: make(self._rng) for name, make in table.columns.items()}
        names = ", ".join((*table.key_columns, *row))
        marks = ", ".join(["%s"] * (len(table.key_columns) + len(row)))
        self._run(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", table.key_of(at), row)
        table.live.add(at)

    def _update(self, table: ShopTable, at: int) -> None:
        changed = [
            name
            for name in table.columns
            if self._rng.random() < (0.1 if name in table.large else 0.5)
        ]
        row = {name: table.columns[name](self._rng) for name in changed or list(table.columns)[:1]}
        assignments = ", ".join(f"{name} = %s" for name in row)
        self._run(
            f"UPDATE {table.name} SET {assignments} WHERE {matches(table)}",
            tuple(row.values()),
            dict(zip(table.key_columns, table.key_of(at), strict=True)),
        )

    def _delete(self, table: ShopTable, at: int) -> None:
        self._run(f"DELETE FROM {table.name} WHERE {matches(table)}", table.key_of(at), {})
        table.live.remove(at)

    def _move(self, table: ShopTable, at: int, to: int) -> None:
        """Give a row another key."""
        assignments = ", ".join(f"{name} = %s" for name in table.key_columns)
        sql = f"UPDATE {table.name} SET {assignments} WHERE {matches(table)}"
        self._run(sql, (*table.key_of(to), *table.key_of(at)), {})
        table.live.remove(at)
        table.live.add(to)

    def _run(self, sql: str, first: tuple[Any, ...], then: Mapping[str, Any]) -> None:
        self._connection.execute(sql.encode(), (*first, *then.values()))


def matches(table: ShopTable) -> str:
    """Returns the condition for a row with a key."""
    return " AND ".join(f"{name} = %s" for name in table.key_columns)
