"""Joins a stream of payments with the table of accounts: each payment with the account's city.

    payments (a topic of events)  --+
                                    +-->  tables/payments-by-city
    tables/accounts (a table)  -----+

Each micro-batch sees the table as it is at that moment. A payment whose account has no row yet has a
null as the city. Spark's checkpoint lies beside the result, and Delta takes each micro-batch once: the
next run repeats what a killed one has left.
"""

import os

from pyspark.sql import functions as F

from pipeline.spark.jars import CONNECTOR, DELTA
from pipeline.spark.session import start_session

SERVERS = os.environ.get("KOMPAKT_BOOTSTRAP_SERVER", "localhost:9092")
RESULT = "tables/payments-by-city"

session = start_session("join", pins=(CONNECTOR, DELTA))
payments = (
    session.readStream.format("kafka")
    .option("kafka.bootstrap.servers", SERVERS)
    .option("subscribe", "payments")
    .option("startingOffsets", "earliest")
    .load()
    .select(F.from_json(F.col("value").cast("string"), "account STRING, amount BIGINT").alias("it"))
    .select("it.account", "it.amount")
)
accounts = session.read.format("delta").load("tables/accounts")
cities = accounts.select(F.col("key").alias("account"), "city")

query = (
    payments.join(cities, "account", "left")
    .writeStream.format("delta")
    .option("checkpointLocation", f"{RESULT}/_checkpoint")
    .trigger(availableNow=True)
    .start(RESULT)
)
query.awaitTermination()

sums = (
    session.read.format("delta").load(RESULT).groupBy("city").agg(F.sum("amount").alias("amount"))
)
for row in sums.orderBy("city").collect():
    print(row["city"], row["amount"])
session.stop()
