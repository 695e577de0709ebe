"""Comparisons of arms over seeds, cross-validation of a table, and the geometry of [CLS].

The files, in the order in which a comparison goes through them:

    arms                 what is compared: norms by name, or options from a YAML file
    comparison           arms and seeds, as compare.yaml keeps them, and the runs that they make
    comparison_set       several of them in one directory
    crossvalidation      the same over the folds of a table
    runner               the processes that train the runs; progress shows how far they are,
                         process_lifetime lets none outlive the command
    analysis             of a trained run: what it predicts, and its embeddings at each layer
                         (model_geometry, by the formulas of geometry)
    arm_comparisons      each arm against the baseline, and the effects in a factorial of norms
    statistics           the tests that these use; roc_statistics: those of areas under the ROC
    results              all of it, into results.json (results_file) and predictions.csv
    fold_results         what a cross-validation came to; fold_text: in words
    report/              results.json and predictions.csv as Markdown, HTML and figures
"""
