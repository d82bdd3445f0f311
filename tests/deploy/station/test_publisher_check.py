from testudo_deploy.station.publisher_check import foreign_publishers, unknown_robots

GUARD, JOYSTICK = "/tb1/guard", "/tb1/teleop_twist_joy_node"


def test_the_own_node_counts_once():
    assert foreign_publishers([GUARD], GUARD) == []
    assert foreign_publishers([], GUARD) == []
    assert foreign_publishers([GUARD, GUARD], GUARD) == [GUARD]


def test_who_is_allowed_by_name_is_no_stranger_in_any_namespace():
    found = [JOYSTICK, GUARD, "/teleop_twist_joy_node", JOYSTICK, "/tb1/nav2"]
    assert foreign_publishers(found, GUARD, ["teleop_twist_joy_node"]) == ["/tb1/nav2"]
    assert foreign_publishers(found, GUARD) == [JOYSTICK, "/teleop_twist_joy_node", JOYSTICK, "/tb1/nav2"]


def test_part_of_a_name_is_not_enough():
    found = ["/joy_node", "/teleop/guard"]
    assert foreign_publishers(found, GUARD, ["joy", "teleop"]) == found


def test_a_stranger_is_a_robot_with_a_topic_for_peers_that_the_fleet_does_not_know():
    topics = [
        "/r9/peer_state",
        "/r0/peer_state",
        "/r9/odom",
        "/r8/mode",
        "/peer_state",
        "/lab/r7/peer_state",
        "/r0/peer_state_for_r1",
        "/r7/peer_state",
    ]
    assert unknown_robots(topics, ["r0", "r1"]) == ["r7", "r9"]
