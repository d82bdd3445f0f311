"""Frames into an .mp4 that browsers and chats play (H.264)."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from testudo_hardware.errors import TestudoError

_QUALITY = "20"  # constant rate factor of H.264: smaller is better, 18 to 23 is good
_LIMIT_S = 60


def write_video(frames: Iterable[np.ndarray], out_path: Path, size: tuple[int, int], frames_per_s: float) -> None:
    """Write frames (height, width, 3) uint8 of ``size`` (width, height), one after the other.

    Raises:
        TestudoError: the encoder is not installed, or it failed.
    """
    width, height = size
    command = [
        _encoder(out_path), "-y", "-loglevel", "error", "-f", "rawvideo", "-pixel_format", "rgb24",
        "-video_size", f"{width}x{height}", "-framerate", f"{frames_per_s:g}", "-i", "-",
        "-c:v", "libx264", "-crf", _QUALITY, "-pix_fmt", "yuv420p",
        # colours are halved in each direction, which needs even sides
        "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-movflags", "+faststart", str(out_path),
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as encoder:  # noqa: S603
        try:
            for frame in frames:
                encoder.stdin.write(np.ascontiguousarray(frame).data)
        except BrokenPipeError:
            pass  # it ended early, and says below why
        except BaseException:
            encoder.kill()
            raise
        _, said = encoder.communicate(timeout=_LIMIT_S)
    if encoder.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or [f"status {encoder.returncode}"]
        raise TestudoError(f"rendering: {out_path}: the video encoder failed: {lines[-1]}")


def _encoder(out_path: Path) -> str:
    """Return the program; only .mp4 needs it."""
    try:
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise TestudoError(
            f"rendering: {out_path}: no encoder for .mp4 here ({error}); install imageio-ffmpeg, or write a .gif"
        ) from error
