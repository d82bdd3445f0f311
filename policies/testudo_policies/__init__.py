"""Learning: networks, algorithms, evaluation, export."""
