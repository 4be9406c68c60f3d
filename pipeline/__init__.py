"""Tables and audits of compacted topics: jobs on Spark, and exports without it."""
