"""Sampled tampering: random edits, and the values of stock Transformers beside the proved bounds."""
