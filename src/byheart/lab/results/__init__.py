"""What a study found."""
