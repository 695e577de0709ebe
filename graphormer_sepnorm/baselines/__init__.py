"""Simple models on fingerprints and descriptors, and their blend with a network."""
