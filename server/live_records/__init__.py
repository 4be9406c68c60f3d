"""How many records a topic really has, and how many of them a group still has to read."""
