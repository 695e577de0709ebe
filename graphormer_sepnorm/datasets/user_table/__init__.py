"""A user's own table as a data set.

One row of a file goes through `tables.text` (a line), `tables.delimited` (cells), `tables.columns`
(numbers and words), `rows` (a molecule with its labels, or why not), `splits` (where it goes) and
`datasets.lazy_graphs` (a graph, when it is asked for). Of all rows together `columns` tells where
things are, `labels` what can be learned, `report` what is in the table, `report_text` that in
words; `load` puts them together.
"""
