"""What Maxwell 1.45.0 wrote of a database in MariaDB 10.11 (with version 0.30.1 of its binlog library).

    CREATE TABLE orders (id bigint PRIMARY KEY, note varchar(100), price decimal(10,2),
        placed_at datetime(6), tags set('a','b'), data varbinary(20), facts json);
    CREATE TABLE customers (code varchar(10), region int, name text, PRIMARY KEY (code, region));
    CREATE TABLE journal (line text);
    INSERT INTO orders VALUES
        (1,'before',1.50,'2026-01-02 03:04:05.678901','a,b',x'00ff','{"n":1}');

`maxwell_object_keys.jsonl`, from here on, with the default `kafka_key_format=hash`:

    INSERT INTO orders VALUES (2,'new',12.30,'2026-01-02 03:04:05','',NULL,NULL),
        (3,'gone',NULL,NULL,NULL,NULL,NULL), (4,'moved',1,NULL,'a',NULL,NULL);
    UPDATE orders SET note='paid' WHERE id=2;
    DELETE FROM orders WHERE id=3;
    UPDATE orders SET id=40 WHERE id=4;
    INSERT INTO customers VALUES ('x',1,'Ana'),('y',2,'Bo');
    UPDATE customers SET name='Ana Z' WHERE code='x';
    DELETE FROM customers WHERE code='y';
    INSERT INTO journal VALUES ('a line');
    ALTER TABLE orders ADD COLUMN city varchar(20);
    INSERT INTO orders VALUES (5,'with city',1,NULL,NULL,NULL,NULL,'Bern');
    INSERT INTO maxwell.bootstrap (database_name, table_name) VALUES ('shop','orders');

`maxwell_array_keys.jsonl`, after that, with `kafka_key_format=array` and `output_ddl=true`:

    INSERT INTO orders VALUES (6,'six',1,NULL,NULL,NULL,NULL,'Bern');
    INSERT INTO customers VALUES ('z',3,'Cy');
    INSERT INTO journal VALUES ('two');
    ALTER TABLE orders ADD COLUMN zip int;
    UPDATE orders SET zip = 3000 WHERE id = 6;
    DELETE FROM customers WHERE code = 'z';
    DELETE FROM journal WHERE line = 'two';
    TRUNCATE TABLE customers;
    DROP TABLE customers;
    INSERT INTO maxwell.bootstrap (database_name, table_name) VALUES ('shop','journal');
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.tables.payload_options import Envelope, Payload, PayloadFormat
from pipeline.tables.source_table import SourceTable
from tests.pipeline.table_model import Record, record

FOLDER = Path(__file__).parents[1] / "conformance" / "transcripts"
OBJECT_KEYS, ARRAY_KEYS = "maxwell_object_keys", "maxwell_array_keys"
ORDERS = SourceTable("shop", "orders")
CUSTOMERS, JOURNAL = SourceTable("shop", "customers"), SourceTable("shop", "journal")
ROW = "id BIGINT, note STRING, price DECIMAL(10, 2), placed_at TIMESTAMP, tags ARRAY<STRING>,"
ROW += " data BINARY, facts STRING, city STRING"
KEY = "`database` STRING, `table` STRING, `pk.id` BIGINT"
MOVED_NOTES = {1: "before", 2: "paid", 4: "moved", 5: "with city", 40: "moved"}
"""Notes of orders by their keys. Maxwell does not say that the row 4 is gone, whose key has changed."""


def transcript(name: str) -> list[Record]:
    lines = (FOLDER / f"{name}.jsonl").read_text().splitlines()
    return [
        record(0, each["offset"], each["key"].encode(), each["value"].encode())
        for each in map(json.loads, lines)
    ]


def payload_of(table: SourceTable = ORDERS, **settings: Any) -> Payload:
    """Returns options for Maxwell's events."""
    said = {
        "value_format": PayloadFormat.JSON,
        "value_schema": ROW,
        "envelope": Envelope.MAXWELL,
        "source_table": table,
    }
    return Payload(**{**said, **settings})
