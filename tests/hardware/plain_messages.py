"""Objects with the fields of ROS messages, as rclpy and rosbags give them."""

from types import SimpleNamespace


def vector():
    return SimpleNamespace(x=0.0, y=0.0, z=0.0)


def quaternion():
    return SimpleNamespace(x=0.0, y=0.0, z=0.0, w=1.0)


def stamp():
    return SimpleNamespace(sec=0, nanosec=0)


def header():
    return SimpleNamespace(stamp=stamp(), frame_id="")


def twist():
    return SimpleNamespace(linear=vector(), angular=vector())


def twist_stamped():
    return SimpleNamespace(header=header(), twist=twist())


def pose():
    return SimpleNamespace(position=vector(), orientation=quaternion())


def pose_stamped():
    return SimpleNamespace(header=header(), pose=pose())


def pose_with_covariance_stamped():
    return SimpleNamespace(header=header(), pose=SimpleNamespace(pose=pose(), covariance=[0.0] * 36))


def odometry():
    return SimpleNamespace(
        header=header(), child_frame_id="", pose=SimpleNamespace(pose=pose()), twist=SimpleNamespace(twist=twist())
    )


def named_poses(*names):
    return SimpleNamespace(header=header(), poses=[SimpleNamespace(name=name, pose=pose()) for name in names])


def transform_stamped():
    return SimpleNamespace(
        header=header(), child_frame_id="", transform=SimpleNamespace(translation=vector(), rotation=quaternion())
    )


def velocity_world():
    return SimpleNamespace(header=header(), vel=vector(), yaw_rate=9.0)


def hover():
    return SimpleNamespace(header=header(), vx=0.0, vy=0.0, yaw_rate=9.0, z_distance=0.0)


def full_state():
    return SimpleNamespace(header=header(), pose=pose(), twist=twist(), acc=vector())
