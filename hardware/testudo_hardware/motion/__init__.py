"""Motion models: one array-API body per kind of robot, used by simulation, shield and identification."""

from testudo_hardware.motion.motion_model import MotionModel, motion_model
from testudo_hardware.motion.motion_state import LagResponse, MotionState, StoppingPoint

__all__ = ["LagResponse", "MotionModel", "MotionState", "StoppingPoint", "motion_model"]
