"""Studies: the next trial, the workers, the records."""
