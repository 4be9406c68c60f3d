"""`make demo`: real flights through real clients, the cleaner and Spark, compared with pandas."""
