"""Links to robots: which value is in which message, on which topic of which robot."""
