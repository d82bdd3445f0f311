# The station with the task node, which scores and needs JAX: ROS 2 from wheels (x86_64), as `make setup` makes it.
#   docker build -f deploy/containers/station.Dockerfile -t testudo-station .
#   docker run --rm -it --network host --ipc host -v "$PWD/fleet:/fleet" testudo-station status --fleet /fleet/fleet.yaml
FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 util-linux \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
WORKDIR /src
RUN pip install --no-cache-dir "/src[train,ros]"
ENTRYPOINT ["testudo"]
CMD ["doctor"]
