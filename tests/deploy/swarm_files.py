"""A configuration of Crazyswarm2 that fits, in the layout that it ships with; tests spoil it."""

CRAZYFLIES = """\
# named list of all robots
fileversion: 3

robots:
  cf231:
    enabled: true
    uri: radio://0/80/2M/E7E7E7E7E7
    initial_position: [-0.5, 0.0, 0.0]
    type: cf21  # see robot_types
  cf5:
    enabled: true
    uri: radio://0/80/2M/E7E7E7E705
    initial_position: [0.5, 0.0, 0.0]
    type: cf21
  cf6:
    enabled: false
    uri: radio://0/80/2M/E7E7E7E706
    initial_position: [0.0, 0.0, 0.0]
    type: other

robot_types:
  cf21:
    motion_capture:
      tracking: "librigidbodytracker"
      marker: mocap_deck
      dynamics: default
    big_quad: false
    battery:
      voltage_warning: 3.8  # V
      voltage_critical: 3.7 # V
  cf21_deck:
    big_quad: false
    battery:
      voltage_warning: 3.8
      voltage_critical: 3.7

all:
  firmware_logging:
    enabled: true
    default_topics:
      pose:
        frequency: 10 # Hz
      status:
        frequency: 10 # Hz
  firmware_params:
    commander:
      enHighLevel: 1
    stabilizer:
      estimator: 2 # 1: complementary, 2: kalman
      controller: 1 # 1: PID, 2: mellinger
    locSrv:
      extPosStdDev: 1e-3
  reference_frame: "world"
  broadcasts:
    num_repeats: 15
    delay_between_repeats_ms: 1
"""
MOTION_CAPTURE = """\
/motion_capture_tracking:
  ros__parameters:
    type: "optitrack"
    topics:
      frame_id: "mocap"
      poses:
        qos:
          mode: "sensor"
          deadline: 100.0 # Hz
    marker_configurations:
      default_single_marker:
        points:
          p0: [0.0177184, 0.0139654, 0.0557585]
      mocap_deck:
        points:
          p0: [0.03, 0.0, 0.0]
          p1: [0.00, -0.03, 0.0]
          p2: [-0.015, 0.0, 0.0]
"""
SERVER = """\
/crazyflie_server:
  ros__parameters:
    warnings:
      communication:
        max_unicast_latency: 10.0 # ms
"""
NAMES = {"crazyflies.yaml": CRAZYFLIES, "motion_capture.yaml": MOTION_CAPTURE, "server.yaml": SERVER}


def write_swarm(folder, changes=(), without=()):
    """Write the files, with some texts replaced, and return the path of the first and the line of the last change."""
    line = 0
    texts = dict(NAMES)
    for name, before, after in changes:
        assert texts[name].count(before) == 1, before
        line = texts[name][: texts[name].index(before)].count("\n") + 1
        texts[name] = texts[name].replace(before, after)
    for name, text in texts.items():
        if name not in without:
            (folder / name).write_text(text, encoding="utf-8")
    return folder / "crazyflies.yaml", line
