"""A user's own table as a data set.

In the order in which it goes: `options` (what the user says), `columns` (where things are), `rows`
(molecules with labels, or why not), `splits` (which row goes where), `labels` (what can be learned
from them), `graphs` (made when they are asked for), `checks` and `report` (what is in the table);
`load` puts them together.
"""
