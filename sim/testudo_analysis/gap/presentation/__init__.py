"""The gap report for people: page, plots, tables, animated view from above.

In: a gap report.
Out: HTML, PNG, terminal tables.
"""
