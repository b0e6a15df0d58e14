"""byheart compiles a data set into a small Transformer that knows it by heart, exactly, and proves it."""

__version__ = "0.1.0"
