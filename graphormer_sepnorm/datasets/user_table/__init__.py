"""A user's own table as a data set.

`find_columns` says which columns hold what, and `rows` reads each row: a molecule with its labels,
or why it cannot be used. `datasets.splitting` divides the rows, `report` tells what is in them, and
`load` puts it all together; graphs are made later, in `datasets.lazy_graphs`.
"""
