"""Networks as values: layers, evaluation, size, file format."""
