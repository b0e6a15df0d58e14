"""Files, frames and arrays, read into sequences and labels."""
