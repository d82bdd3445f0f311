"""The verbs of the learning side."""
