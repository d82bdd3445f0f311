from rosbags.typesys import Stores, get_typestore

from testudo_runs.bags import run_types
from testudo_runs.bags.run_types import run_typestore


def test_the_types_of_runs_are_the_standard_ones():
    """Every field of every listed type is that of ROS 2, so that a run is read as with all standard types."""
    standard = get_typestore(Stores.ROS2_KILTED)
    names = [kind.replace("/", "/msg/") for kind in run_types._FIELDS]
    store = run_typestore(names)
    assert {name: store.fielddefs[name][1] for name in names} == {name: standard.fielddefs[name][1] for name in names}


def test_a_type_that_is_not_listed_comes_from_the_standard_ones():
    assert "sensor_msgs/msg/Imu" in run_typestore(["std_msgs/msg/Bool", "sensor_msgs/msg/Imu"]).fielddefs
    assert "sensor_msgs/msg/Imu" not in run_typestore(["std_msgs/msg/Bool"]).fielddefs
