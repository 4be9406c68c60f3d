"""The formats of a table on Spark, with the offsets that it holds."""
