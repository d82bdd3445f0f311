"""A scenario's task on a running fleet: measured poses in, the rewards and the success of training out."""

from testudo_sim.online_task.online_task import DecisionScore, OnlineTask
from testudo_sim.online_task.pose_track import Pose, PoseTrack
from testudo_sim.online_task.task_state import goals_of, make_task, scoring_of

__all__ = ["DecisionScore", "OnlineTask", "Pose", "PoseTrack", "goals_of", "make_task", "scoring_of"]
