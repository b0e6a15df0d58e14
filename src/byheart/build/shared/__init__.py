"""Parts that several constructions build with."""
