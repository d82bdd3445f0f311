"""Builds the ROS 2 package with colcon; `pip install testudo` does not use this file."""

from setuptools import find_packages, setup

NAME = "testudo_nodes"

setup(
    name=NAME,
    version="0.1.0",
    # found, not listed: a sourced workspace hides the installed package, so a room that is left out would be missing
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["py.typed"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
    ],
    # No install_requires: `pip install` brings the robot side, rosdep with package.xml the rest.
    zip_safe=True,
    maintainer="The Testudo authors",
    maintainer_email="testudo@example.org",
    description="Thin ROS 2 nodes around the Testudo robot side",
    license="Apache-2.0",
    entry_points={
        "console_scripts": [
            f"guard_node = {NAME}.robot.guard_node:main",
            f"driver_node = {NAME}.robot.driver_node:main",
            f"policy_node = {NAME}.robot.policy_node:main",
            f"plant_node = {NAME}.plant.plant_node:main",
            f"recorder_node = {NAME}.station.recorder_node:main",
            f"markers_node = {NAME}.station.markers_node:main",
            f"task_node = {NAME}.station.task_node:main",
            f"station_node = {NAME}.station.station_node:main",
            f"emergency_stop_node = {NAME}.station.emergency_stop_node:main",
        ]
    },
)
