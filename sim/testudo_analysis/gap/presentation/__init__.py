"""The gap report for people: page, plots, tables, film from above.

In: a gap report.
Out: HTML, PNG, terminal tables.
"""
