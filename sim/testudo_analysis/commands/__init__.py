"""Command-line verbs of recorded runs.

In: options of the command line; the signature of each function is its command line.
Out: tables on the terminal, files and an exit status.
"""
