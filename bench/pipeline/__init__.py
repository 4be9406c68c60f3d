"""Work of Spark: the segment source, distributed passes."""
