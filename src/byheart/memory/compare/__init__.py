"""Every construction on one data set, side by side."""
