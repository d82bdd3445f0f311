"""A better policy out of a real run: identify, randomise, fine-tune, compare, export."""
