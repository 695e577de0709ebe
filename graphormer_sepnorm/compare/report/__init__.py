"""The report of a comparison, made from results.json alone: report.html and summary.md.

`document` fills page.html with tables and notes, whose numbers `numbers` writes, and with the
pictures of `figures`. `set_table` puts several comparisons into one table.
"""
