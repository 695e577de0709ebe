"""A user's own table as a data set.

In the order in which it goes: `options` (what the user says), `columns` (where things are) and
`unread` (what the other columns say), `rows` (molecules with labels, or why not), `splits` (which
row goes where), `labels` (what can be learned from them), `checks` and `report` (what is in the
table; `report_text` in words); `load` puts them together. Graphs are made when they are asked for
(`datasets.lazy_graphs`).
"""
