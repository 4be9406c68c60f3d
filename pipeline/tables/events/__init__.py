"""Change events of databases: what they say of a row, and what they leave out."""
