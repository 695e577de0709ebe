"""Comparisons of arms over seeds, cross-validation of a table, and the geometry of [CLS].

The files, in the order in which a comparison goes through them:

    arms                 what is compared: norms by name, or options from a YAML file
    comparison_set       several comparisons in one directory
    checks               what is planned, before it starts; runs/plan.py keeps it, runs/scheduler.py
                         trains it, lifetime lets no process outlive its command
    results              the finished runs, into results.json and predictions.csv
    model_geometry       of a trained run: its embeddings at each layer, by the formulas of geometry
    statistics           the tests of differences; roc_statistics: those of areas under the ROC
    factors              the effects in a factorial of norms
    fold_results         what a cross-validation came to
    report/              results.json as one HTML page and a summary
"""
