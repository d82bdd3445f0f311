"""The verbs of the simulation side. Each is a function whose signature is its command line."""
