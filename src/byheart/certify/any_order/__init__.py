"""The proof that floats evaluate a network exactly, in every order of every sum."""
