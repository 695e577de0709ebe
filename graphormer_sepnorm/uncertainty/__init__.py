"""The uncertainty of predictions: intervals, calibrated probabilities, applicability domain."""
