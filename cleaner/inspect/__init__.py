"""Work over a log that changes nothing: rehearsals, key search, digest, counts of keys, verification."""
