"""Graphs as arrays: structure, the store on disk, batches. Needs numpy, scipy and torch only."""
