"""Bags as they lie on the disk: what stands in them, and the one reader that streams MCAP files, whole or damaged."""
