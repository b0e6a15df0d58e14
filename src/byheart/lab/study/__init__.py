"""Studies: what to train next, where trials run, what is kept."""
