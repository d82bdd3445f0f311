"""How robots are reached: what stands in which message, and on which topic of which robot."""
