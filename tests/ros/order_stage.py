"""A fleet that takes orders over real DDS, as tests start it: its files, its processes, and what they report."""

import time
from dataclasses import replace

from tests.sim.online_task.task_fleet import make_task_fleet

from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.fleet_run import FleetRunState, take_rest
from testudo_deploy.launch.launch_plan import plan, with_until
from testudo_deploy.station.fleet_status import FleetStatus

DRIVES = ("active", "holding")  # on a loaded machine a robot that drives holds now and then
_PATIENCE_S = 300.0
_UNDER_WAY_S = 3.0  # after which no robot is said to stand at the goal that it had before


def write_order_fleet(folder, places):
    """Write a fleet of `navigation` whose robots stand at their goals, by name and place, and return it."""
    fleet = make_task_fleet(folder, "navigation", len(places))
    robots = tuple(
        replace(one, name=name, initial_position_world=place, initial_yaw=0.0, goal_world=place)
        for one, (name, place) in zip(fleet.robots, places.items(), strict=True)
    )
    save_fleet(replace(fleet, robots=robots, orders=True, task={}), fleet.file)
    return load_fleet(fleet.file)


class OrderStage:
    """The processes of a fleet, whose run ends when all robots are at their goals; a context manager."""

    def __init__(self, fleet, run_folder, *, late=""):
        """Prepare; the processes of the robot ``late`` are started by `start`."""
        planned = with_until(plan(fleet, run_folder=run_folder, duration_s=900.0), "arrived", orders=True)
        self._plan = {process.label: process for process in planned}
        self.processes = FleetProcesses([one for one in planned if not late or one.namespace != late])
        self.seen = {}
        """Mode and sentence of each robot at the last look."""
        self.state = FleetRunState(fleet.names, run_folder=run_folder, domain_id=self.processes.domain_id)

    def __enter__(self):
        self.processes.__enter__()
        return self

    def __exit__(self, *_):
        self.processes.stop()

    @property
    def domain(self):
        """Return the ROS domain."""
        return self.state.domain_id

    def take_events(self, enough, patience_s=_PATIENCE_S):
        """Take what the processes report until it is enough."""
        end_s = time.monotonic() + patience_s
        while not enough(self.state):
            assert time.monotonic() < end_s, (self.state.outcome, self.state.braked, self.state.lines)
            event = self.processes.next_event(0.2)
            if event is not None:
                self.state.take(event)

    def finish(self):
        """Wait for the end of the job, and end all processes."""
        self.take_events(lambda state: state.outcome)
        self.processes.stop()
        take_rest(self.processes, self.state)
        return self.state

    def modes_become(self, robots, wanted, patience_s=240.0):
        """Return whether robots come to one of some modes, all at one moment."""
        return self._become(robots, lambda one: one.mode in wanted, patience_s)

    def come_to_goals(self, robots, patience_s=240.0):
        """Return whether robots that were given goals stand at them, all at one moment."""
        time.sleep(_UNDER_WAY_S)
        return self._become(robots, lambda one: one.holds == "arrived", patience_s)

    def _become(self, robots, wanted, patience_s):
        from testudo_nodes.station.operator_listener import fleet_listener

        heard = FleetStatus()

        def there():
            found = {one.name: one for one in heard.robots(time.monotonic())}
            self.seen = {name: (one.mode, one.sentence) for name, one in found.items()}
            return all(name in found and wanted(found[name]) for name in robots)

        with fleet_listener("test", heard, self.domain, local=True) as listener:
            listener.listen(patience_s, enough=there)
        return there()

    def end(self, robot):
        """Kill the processes of a robot, without a last command."""
        for label in (f"{robot}/policy", f"{robot}/guard"):
            self.processes.signal(label, 9)

    def start(self, robot):
        """Start the processes of a robot, also again."""
        for label in (f"{robot}/guard", f"{robot}/policy"):
            self.processes.start(self._plan[label])
