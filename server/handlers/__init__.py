"""One file per API; each opens with its key, its versions and what it does."""
