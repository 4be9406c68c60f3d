"""Topics: creation, deletion, very many of them."""
