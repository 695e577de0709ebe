"""What a run is on disk, and the table of results made from runs."""
