"""MuJoCo worlds, and the plant that replaces robots behind ROS 2. No JAX.

In: robot files, commands.
Out: poses, odometry, contacts.
"""
