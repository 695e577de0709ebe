"""The report of a comparison, made from results.json and predictions.csv alone."""
