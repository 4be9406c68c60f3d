"""The ledger of cleaning passes: a chain of certificates for each log directory, and its signed head."""
