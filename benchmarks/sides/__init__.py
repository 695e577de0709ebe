"""One file per side: each runs in the environment of its library and does the same work."""
