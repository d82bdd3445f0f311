"""The gap report: how far the model of a robot is from what a recorded one really did, where, and what that means."""
