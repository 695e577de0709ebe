"""How sure a prediction is: intervals, calibrated probabilities, likeness to the training data."""
