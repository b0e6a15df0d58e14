"""KS25, Appendix G: feed-forward networks that know labels by heart, whole or with skip connections."""
