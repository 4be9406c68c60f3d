"""What a log remembers: producers, epochs, transactions, and how that is rebuilt."""
