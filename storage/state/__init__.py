"""What a log knows beside its records: producers, epochs, transactions; how that is rebuilt."""
