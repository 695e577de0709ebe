"""The report of a comparison, made from results.json and predictions.csv alone.

`document` fills report.jinja, where all words of the report stand in their order, with the
sentences of `text` (which the terminal says too), the cells of `tables`, and figures: `figures` of
the runs, `prediction_figures` of the test molecules, `geometry_figures` of the embeddings.
`set_table` puts several comparisons into one table.
"""
