"""`testudo bench drone_bands`: coverage of 95 % prediction bands of drones on held-out real flights."""

import os
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np

from testudo_analysis.identify.drone.drone_fit import fit_drone
from testudo_analysis.identify.drone.fitted_model import DroneModel
from testudo_analysis.identify.drone.flight_segments import FlightRecord
from testudo_analysis.identify.drone.response_noise_fit import (
    FlightErrors,
    coverage_of,
    fit_response_noise,
    joined_coverage,
)
from testudo_analysis.identify.estimation.identification_result import ANGLES, RUNS, Coverage
from testudo_bench.accuracy.drone_identification import FOLDER, read_flights
from testudo_bench.performance.recorded_runs import DATA_VARIABLE
from testudo_deploy.commands.report import BenchResult, machine
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot

_FEWEST_RUNS = 3
_COLUMNS = ("vehicle", "after", "channel", "inside", "without the process", "width, median", "motions")


def bench_drone_bands(
    *,
    data: Path | None = None,
    robot: str = "crazyflie_2x",
    runs: str = "swap",
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Hold out each run, and count its motions inside the 95 % bands of futures sampled by the process of the others.

    Neither parameters nor process have seen the held-out run: the process is matched to the errors of each other run by
    parameters that have seen neither that run nor the held-out one.

    Args:
        data: folder of Crazyflie logs; default: that in the environment variable TESTUDO_REAL_DATA.
        robot: registered robot or robot file.
        runs: use runs whose name contains this text.
        say: called with progress messages.
    """
    flights = read_flights(data or Path(os.environ.get(DATA_VARIABLE, "")) / FOLDER, runs, say)
    names = tuple(dict.fromkeys(map(_run, flights)))
    if len(names) < _FEWEST_RUNS:
        raise TestudoError(f"drone_bands: found {len(names)} runs, expected at least {_FEWEST_RUNS}: two beside each")
    model = DroneModel(load_robot(robot))
    errors: dict[tuple[str, str], FlightErrors | None] = {}  # of the first run, by parameters without both
    for one, other in combinations(names, 2):
        say(f"fitting without {one} and {other}")
        vector = fit_drone(model, [flight for flight in flights if _run(flight) not in (one, other)]).vector
        for held, second in ((one, other), (other, one)):
            errors[held, second] = FlightErrors.create(model, vector, [each for each in flights if _run(each) == held])
    rows: list[Coverage] = []
    processes = {}
    for held in names:
        say(f"fitting without {held}")
        fit = fit_drone(model, [flight for flight in flights if _run(flight) != held])
        known = [errors[one, held] for one in names if one != held]
        noise = fit_response_noise(model, fit.vector, FlightErrors.joined([one for one in known if one is not None]))
        processes[held] = noise.to_dict()
        rows += coverage_of(fit, noise, [flight for flight in flights if _run(flight) == held], RUNS)
    found = joined_coverage(rows)
    values = {"machine": machine(), "coverage": [vars(row) for row in found], "processes": processes}
    title = f"95 % bands of {len(flights)} flights of {robot}, each of {len(names)} runs held out"
    return BenchResult(title, _COLUMNS, [_cells(row) for row in found], values)


def _run(flight: FlightRecord) -> str:
    return flight.name.partition("/")[0]


def _cells(row: Coverage) -> tuple[str, ...]:
    width = f"{np.degrees(row.width):.1f} deg" if row.channel in ANGLES else f"{1e3 * row.width:.0f} mm"
    shares = (f"{share:.1%}" for share in (row.inside, row.without_noise))
    return (row.robot or "all", f"{row.horizon_s:g} s", row.channel, *shares, width, str(row.count))
