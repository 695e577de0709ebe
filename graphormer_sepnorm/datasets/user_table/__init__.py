"""A user's own table as a data set.

In the order in which it goes: `options` (what the user says), `columns` (where things are),
`row_reader` (a molecule with its labels, or why not) and `rows` (all of them), `splits` (which row
goes where), `labels` (what can be learned from them), `checks` and `report` (what is in the table;
`report_text` in words); `load` puts them together. Graphs are made when they are asked for
(`datasets.lazy_graphs`).
"""
