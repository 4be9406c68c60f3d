"""Consumer groups: the requests of both protocols, committed offsets, and the topic that stores them."""
