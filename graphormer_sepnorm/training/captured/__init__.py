"""Training on one GPU as replays of a CUDA graph: steps, launches of several, several seeds."""
