"""What a study says."""
