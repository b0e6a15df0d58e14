"""How a text becomes tokens."""
