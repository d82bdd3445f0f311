"""Who may publish on a topic of commands, and which robots are not in the fleet."""

from testudo_deploy.launch.fleet_topics import foreign_publishers, unknown_robots

GUARD, JOYSTICK = "/tb1/guard", "/tb1/teleop_twist_joy_node"


def test_the_own_node_counts_once():
    assert foreign_publishers([GUARD], GUARD) == []
    assert foreign_publishers([], GUARD) == []
    assert foreign_publishers([GUARD, GUARD], GUARD) == [GUARD]


def test_a_node_allowed_by_name_is_not_foreign_in_any_namespace():
    found = [JOYSTICK, GUARD, "/teleop_twist_joy_node", JOYSTICK, "/tb1/nav2"]
    assert foreign_publishers(found, GUARD, ["teleop_twist_joy_node"]) == ["/tb1/nav2"]
    assert foreign_publishers(found, GUARD) == [JOYSTICK, "/teleop_twist_joy_node", JOYSTICK, "/tb1/nav2"]


def test_part_of_a_name_is_not_enough():
    found = ["/joy_node", "/teleop/guard"]
    assert foreign_publishers(found, GUARD, ["joy", "teleop"]) == found


def test_an_unknown_robot_has_a_topic_for_peers_and_is_not_in_the_fleet():
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
