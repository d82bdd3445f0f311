"""What the launch files of a fleet share."""
