"""The gap report for people: sentences, tables, and the courses of real and replayed robots.

In: a gap report.
Out: text, terminal tables, poses at common times.
"""
