"""The version of byheart, where every package can see it."""

__version__ = "0.1.0"
