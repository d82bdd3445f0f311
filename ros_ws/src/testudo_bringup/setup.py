"""Installs launch files, their shared module and configuration with colcon."""

from pathlib import Path

from setuptools import setup

NAME = "testudo_bringup"

setup(
    name=NAME,
    version="0.1.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", sorted(map(str, Path("launch").glob("*.launch.py")))),
        (f"share/{NAME}/config", sorted(map(str, Path("config").glob("*.*")))),
    ],
    zip_safe=True,
    maintainer="The Testudo authors",
    maintainer_email="testudo@example.org",
    description="Launch files and example configuration of a Testudo fleet",
    license="Apache-2.0",
)
