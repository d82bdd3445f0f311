"""Command-line verbs of learning.

In: options of the command line.
Out: files, tables on the terminal and an exit status.
"""
