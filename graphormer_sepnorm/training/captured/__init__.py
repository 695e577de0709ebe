"""Training on one GPU as replays of a CUDA graph: steps, and launches of several."""
