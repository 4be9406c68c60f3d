"""Computes features of each account from its history, as a table that `kompakt pipeline load` publishes.

    tables/accounts-history  -->  tables/account-features  -->  the topic `account-features`

The history has a row for each value that an account has had. The values of a closed account have all
ended, so it gets no features. A feature store then is a compacted topic: the last features of each key,
read by key (`kompakt get`), and by any consumer as they change.
"""

from pyspark.sql import functions as F

from pipeline.spark.jars import DELTA
from pipeline.spark.session import start_session

session = start_session("features", pins=(DELTA,))
history = session.read.format("delta").load("tables/accounts-history")
features = history.groupBy("key").agg(
    F.count("*").alias("changes"),
    F.count_distinct("city").alias("cities"),
    F.max("balance").alias("highest_balance"),
    F.max_by("city", "_offset").alias("last_city"),
    F.count_if(F.col("_valid_to_offset").isNull()).alias("values_now"),
)
features = features.where("values_now > 0").drop("values_now")
features.write.format("delta").mode("overwrite").save("tables/account-features")
print(f"{features.count()} accounts")
session.stop()
