"""A pytest plugin for fleets of several workers: each worker takes ROS domains of its own."""

from tests import processor_time

from testudo_deploy.launch import child_processes


def pytest_configure(config):
    """Share the free domains out: two workers that look for one at the same moment would find the same."""
    processor_time.count_out_keep_awake()
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        first = int(worker["workerid"].removeprefix("gw"))
        child_processes._FREE_DOMAINS = child_processes._FREE_DOMAINS[
            first % worker["workercount"] :: worker["workercount"]
        ]
