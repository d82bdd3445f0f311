# Guard and policy of a robot on ROS 2, also the station without the task node. From the top of the repository:
#   docker build -f deploy/containers/robot.Dockerfile -t testudo-robot .
#   docker run --rm --network host --ipc host --ulimit rtprio=20 -v "$PWD/fleet:/fleet:ro" testudo-robot \
#       ros2 launch testudo_bringup robot.launch.py robot:=tb1 fleet:=/fleet/fleet.yaml backend:=hw
ARG ROS_DISTRO=jazzy
FROM ros:${ROS_DISTRO}-ros-base
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv python3-rich gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE /src/
COPY hardware /src/hardware
COPY deploy /src/deploy
COPY sim /src/sim
COPY policies /src/policies
COPY ros_ws /src/ros_ws
# the system's NumPy stays: the messages of ROS are built for it
RUN python3 -m venv --system-site-packages /opt/testudo/venv \
    && /opt/testudo/venv/bin/pip install --no-cache-dir "/src[robot]" "numpy==$(python3 -c 'import numpy; print(numpy.__version__)')"
RUN . "/opt/ros/${ROS_DISTRO}/setup.sh" && . /opt/testudo/venv/bin/activate && cd /src/ros_ws \
    && colcon build --merge-install --install-base /opt/testudo/install
COPY deploy/systemd/ros-run /opt/testudo/bin/ros-run
ENTRYPOINT ["/opt/testudo/bin/ros-run"]
CMD ["testudo", "doctor"]
