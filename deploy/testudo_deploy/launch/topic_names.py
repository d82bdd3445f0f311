"""Names of the topics of a whole fleet and of nodes; nothing else, so that an operator's verb starts quickly."""

EVENTS_TOPIC = "/plant/events"
DIAGNOSTICS_TOPIC = "/diagnostics"
ESTOP_TOPIC = "/estop"  # `std_msgs/Bool`, a level: true stops the whole fleet. A robot's own `estop` stops that robot
HEARTBEAT_TOPIC = "/station_heartbeat"
"""`std_msgs/String` with a number that changes: the emergency stop of the station can be reached."""
MARKERS_TOPIC = "/fleet/markers"
"""`visualization_msgs/MarkerArray` in the frame that the fleet shares; for viewers only, not recorded."""
SCORE_TOPIC = "/task/score"
"""`std_msgs/String` with a JSON object of the schema `SCORE_SCHEMA`, one for each decision of the task."""
SCORE_SCHEMA = "testudo/score/1"
RUNNING, SUCCESS, TIMEOUT = "running", "success", "timeout"
"""States of the score at the end of a task, and outcomes of the run that it ends."""
GOALS_TOPIC = "/task/goals"
"""`visualization_msgs/MarkerArray` in the frame that the fleet shares: goals, and measured bodies."""
PEER_TOPIC = "peer_state"  # topic of each robot with its state and reservations for its peers

OPERATOR = "operator"
"""The user of `testudo status`, `testudo estop` and of services by hand; not a process of the plan."""
DRIVER = "driver"
"""The other end of a robot's link; on real robots in the plan only if the profile has a driver of ours."""
TOOL_NODES = "testudo_tool"  # prefix of the names of nodes that command-line verbs create; their process id follows
LOST_TOPIC = "/fleet/lost"
"""`std_msgs/String`, a JSON object: the robot that an operator declares lost, and where it rests."""
