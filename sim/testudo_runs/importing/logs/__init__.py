"""Reads text, CSV and binary logs as recordings.

In: files and a mapping.
Out: series by robot and role.
"""
