"""What the environment says about the ROS domain and its discovery."""

import pytest

from testudo_deploy.launch.ros_domain import discover_everything


@pytest.mark.parametrize("before", [{}, {"ROS_SUPER_CLIENT": "FALSE"}])
def test_a_discovery_server_is_asked_for_everything(before):
    """As an ordinary client a guard would not find a second publisher of commands."""
    with_server = {"ROS_DISCOVERY_SERVER": "10.0.0.1:11811", **before}
    discover_everything(with_server)
    assert with_server["ROS_SUPER_CLIENT"] == "TRUE"
    without = dict(before)
    discover_everything(without)
    assert without == before
