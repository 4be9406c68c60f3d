"""Tables of compacted topics, written without Spark."""
