"""Text, CSV and binary logs of others, read as recordings.

In: files and a mapping.
Out: series by robot and role.
"""
