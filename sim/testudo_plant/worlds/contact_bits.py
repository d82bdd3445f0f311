"""Which geoms may touch: MuJoCo lets two geoms collide if one's contype meets the other's conaffinity.

Only what matters is a candidate: robot and robot, robot and wall, robot and box, box and floor, wheels
and floor.
"""

FLOOR = 1
"""What the floor offers: wheels, casters and boxes stand on it."""
ROBOT = 2
"""Hulls of ground robots among themselves."""
WALL = 4
"""Walls and fixed obstacles, which hulls and boxes touch."""
LEVEL = 8
"""Floor and ceiling for robots that fly."""
AIR = 16
"""Hulls of robots that fly, among themselves and with the bodies of ground robots."""
BOX = 32
"""Boxes, which hulls and other boxes touch."""
