"""Training: the Lightning module, its loss, metrics, optimiser, schedule and callbacks."""
