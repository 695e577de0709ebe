"""Training: the Lightning module, its loss, metrics, optimizer, schedule and callbacks."""
