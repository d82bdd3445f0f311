"""The message types of runs alone: to build all 180 standard types takes longer than to read a short run.

`get_typestore` of rosbags makes a class of every standard type. Types that are not listed here are left to it.
"""

from collections.abc import Iterable
from typing import Any

from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

_HEADER = "std_msgs/Header header"
_FIELDS = {
    "builtin_interfaces/Time": "int32 sec, uint32 nanosec",
    "diagnostic_msgs/DiagnosticStatus": (
        "byte level, string name, string message, string hardware_id, diagnostic_msgs/KeyValue[] values"
    ),
    "diagnostic_msgs/KeyValue": "string key, string value",
    "geometry_msgs/Point": "float64 x, float64 y, float64 z",
    "geometry_msgs/Pose": "geometry_msgs/Point position, geometry_msgs/Quaternion orientation",
    "geometry_msgs/PoseStamped": f"{_HEADER}, geometry_msgs/Pose pose",
    "geometry_msgs/PoseWithCovariance": "geometry_msgs/Pose pose, float64[36] covariance",
    "geometry_msgs/Quaternion": "float64 x, float64 y, float64 z, float64 w",
    "geometry_msgs/Transform": "geometry_msgs/Vector3 translation, geometry_msgs/Quaternion rotation",
    "geometry_msgs/TransformStamped": f"{_HEADER}, string child_frame_id, geometry_msgs/Transform transform",
    "geometry_msgs/Twist": "geometry_msgs/Vector3 linear, geometry_msgs/Vector3 angular",
    "geometry_msgs/TwistStamped": f"{_HEADER}, geometry_msgs/Twist twist",
    "geometry_msgs/TwistWithCovariance": "geometry_msgs/Twist twist, float64[36] covariance",
    "geometry_msgs/Vector3": "float64 x, float64 y, float64 z",
    "nav_msgs/Odometry": (
        f"{_HEADER}, string child_frame_id, geometry_msgs/PoseWithCovariance pose, "
        "geometry_msgs/TwistWithCovariance twist"
    ),
    "std_msgs/Bool": "bool data",
    "std_msgs/Header": "builtin_interfaces/Time stamp, string frame_id",
    "std_msgs/MultiArrayDimension": "string label, uint32 size, uint32 stride",
    "std_msgs/MultiArrayLayout": "std_msgs/MultiArrayDimension[] dim, uint32 data_offset",
    "std_msgs/String": "string data",
    "std_msgs/UInt8MultiArray": "std_msgs/MultiArrayLayout layout, uint8[] data",
}
"""Fields of each type, as in its definition; a test compares them with the standard ones."""


def run_typestore(kinds: Iterable[str]) -> Typestore:
    """Return the given standard types, such as `std_msgs/msg/Bool`, with those that they refer to; or all of ROS 2."""
    needed, todo = dict[str, Any](), [kind.replace("/msg/", "/") for kind in kinds]
    while todo:
        kind = todo.pop()
        if kind not in _FIELDS:
            return get_typestore(Stores.ROS2_KILTED)
        pairs = [field.split(" ") for field in _FIELDS[kind].split(", ")]
        needed[_full(kind)] = ([], [(name, _node(text)) for text, name in pairs])
        inner = {text.partition("[")[0] for text, _ in pairs}
        todo += [text for text in sorted(inner) if "/" in text and _full(text) not in needed]
    store = get_typestore(Stores.EMPTY)
    store.register({name: fields for name, fields in needed.items() if name not in store.fielddefs})
    return store


def _node(text: str) -> Any:
    """Return a kind such as `float64[36]` as rosbags describes it."""
    kind, listed, count = text.partition("[")
    one = (Nodetype.NAME, _full(kind)) if "/" in kind else (Nodetype.BASE, (kind, 0))
    if not listed:
        return one
    length = count.removesuffix("]")
    return (Nodetype.ARRAY, (one, int(length))) if length else (Nodetype.SEQUENCE, (one, 0))


def _full(kind: str) -> str:
    return kind.replace("/", "/msg/")
