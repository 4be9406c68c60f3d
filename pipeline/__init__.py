"""PySpark jobs over compacted topics."""
