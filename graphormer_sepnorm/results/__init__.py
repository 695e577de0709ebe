"""The results of a project: one small record per experiment, and a table of them."""
