"""Graphs as arrays: structure, the store on disk, batches. Needs numpy and torch only."""
