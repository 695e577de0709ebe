"""Comparisons of arms over seeds, cross-validation of a table, and the geometry of [CLS].

The files, in the order in which a comparison goes through them:

    arms                 what is compared: norms by name, or options from a YAML file
    comparison           arms and seeds, as compare.yaml keeps them, and the runs that they make
    comparison_set       several of them in one directory
    crossvalidation      the same over the folds of a table
    runner               the processes that train the runs; progress shows how far they are,
                         process_lifetime lets none outlive the command
    results              the finished runs, into results.json and predictions.csv
    model_geometry       of a trained run: its embeddings at each layer, by the formulas of geometry
    statistics           the tests of differences; roc_statistics: those of areas under the ROC
    factors              the effects in a factorial of norms
    fold_results         what a cross-validation came to
    report/              results.json as one HTML page and a summary
"""
