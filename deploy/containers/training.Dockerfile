# Training on NVIDIA GPUs; without one JAX uses the processor.
#   docker build -f deploy/containers/training.Dockerfile -t testudo-training .
#   docker run --rm --gpus all -v "$PWD/runs:/runs" testudo-training train navigation --run /runs/mine
FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends libegl1 \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir "/src[gpu]"
ENTRYPOINT ["testudo"]
CMD ["--help"]
