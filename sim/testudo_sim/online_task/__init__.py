"""Online scoring of the task of a scenario on a running fleet.

In: measured poses of robots and bodies, goals.
Out: rewards and success as in training.
"""

from testudo_sim.online_task.online_task import DecisionScore, OnlineTask
from testudo_sim.online_task.task_state import Pose, PoseTrack, goals_of, make_task, scoring_of

__all__ = ["DecisionScore", "OnlineTask", "Pose", "PoseTrack", "goals_of", "make_task", "scoring_of"]
