"""The verbs of the robot side. Each is a function whose signature is its command line.

In: options.
Out: files, and a `Report` for terminal and JSON.
"""
