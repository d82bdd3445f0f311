"""The verbs of the robot side. Each is a function whose signature is its command line."""
