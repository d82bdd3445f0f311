"""Improvement of a policy from a recorded run: identify, randomise, fine-tune, compare, export.

In: a run folder and a policy artefact.
Out: an identified robot file, a comparison and, if it is not worse, a new artefact.
"""
