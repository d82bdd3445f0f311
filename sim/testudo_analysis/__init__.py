"""Analysis of recorded runs: replay, gap, identification, incidents, report, rendering.

In: a recorded run and a robot file.
Out: figures, pages, films, an identified robot file.
"""
