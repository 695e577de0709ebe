"""Comparisons of arms over seeds, cross-validation of a table, and the geometry of [CLS].

arms         what is compared; runs/plan.py holds it, runs/scheduler.py trains it
results      the finished runs of a comparison, into results.json
folds        the finished runs of a cross-validation
geometry     the embeddings of a trained run at each layer
statistics   the tests of differences, and the effects in a factorial of norms
figures      the pictures of both
report       results.json as one HTML page and a summary
"""
