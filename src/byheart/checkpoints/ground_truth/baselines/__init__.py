"""Published methods, run on stock Transformers models: one file per task."""
