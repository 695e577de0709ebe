"""Comparisons of arms over seeds, cross-validation of a table, and the geometry of [CLS].

The files, in the order in which a comparison goes through them:

    arms                 what is compared: norms by name, or options from a YAML file
    comparison_set       several comparisons in one directory
    checks               what is planned, before it starts; runs/plan.py keeps it, runs/scheduler.py
                         trains it, process_lifetime lets no process outlive its command
    analysis             of a trained run: what it predicts, and its embeddings at each layer
                         (model_geometry, by the formulas of geometry)
    arm_comparisons      each arm against the baseline, and the effects in a factorial of norms
    statistics           the tests that these use; roc_statistics: those of areas under the ROC
    results              all of it, into results.json (results_file) and predictions.csv
    fold_results         what a cross-validation came to; fold_text: in words
    report/              results.json and predictions.csv as Markdown, HTML and figures
"""
