"""A drone by radio in a fleet file: its URI, the driver in the plan, and what that may speak on."""

import pytest
import yaml
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.commands.security import enclaves
from testudo_deploy.fleet.fleet import FleetError, load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.launch.fleet_topics import topics
from testudo_deploy.launch.launch_plan import plan
from testudo_deploy.launch.process_interfaces import process_interfaces

URI = "radio://{0}/80/2M/E7E7E7E70{0}"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    make_tiny_fleet(folder, 2, "crazyflie_2x")
    return with_links(folder, [{"profile": "crazyflie_radio", "uri": URI.format(k)} for k in range(2)])


def with_links(folder, links):
    file = folder / "fleet.yaml"
    tables = yaml.safe_load(file.read_text())
    for robot, link in zip(tables["robots"].values(), links, strict=True):
        robot["link"] = link
    file.write_text(yaml.safe_dump(tables, sort_keys=False))
    return load_fleet(file)


def test_the_uri_is_read_and_written_again(fleet, tmp_path):
    assert [robot.link.uri for robot in fleet.robots] == [URI.format(0), URI.format(1)]
    save_fleet(fleet, tmp_path / "copy.yaml")
    assert [robot.link for robot in load_fleet(tmp_path / "copy.yaml").robots] == [one.link for one in fleet.robots]


@pytest.mark.parametrize(
    ("robot", "link", "said"),
    [
        ("crazyflie_2x", "crazyflie_radio", "link.uri: found '', expected the address of the drone as cflib writes it"),
        (
            "crazyflie_2x",
            {"profile": "crazyflie_radio", "uri": "80/2M"},
            "link.uri: found '80/2M', expected the address",
        ),
        ("crazyflie_2x", {"profile": "testudo", "uri": URI}, "link.uri: unknown key for link 'testudo'"),
        (
            "gritsbot_x",
            {"profile": "crazyflie_radio", "uri": URI},
            "carries commands of a velocity_point, found a diff",
        ),
    ],
)
def test_a_uri_that_is_missing_or_of_no_use_is_refused(tmp_path, robot, link, said):
    make_tiny_fleet(tmp_path, 1, robot)
    with pytest.raises(FleetError, match=said):
        with_links(tmp_path, [link])


def test_real_drones_get_a_driver_and_the_plant_none(fleet):
    labels = [process.label for process in plan(fleet, run_folder=None, backend="hw")]
    robots = [f"{name}/{kind}" for name in ("r0", "r1") for kind in ("driver", "guard", "policy")]
    assert labels == ["emergency_stop", "station", *robots]
    assert [process.label for process in plan(fleet, run_folder=None, backend="hw", robot="r1")] == [
        "r1/driver",
        "r1/guard",
        "r1/policy",
    ]
    assert not [process for process in plan(fleet, run_folder=None) if process.name == "driver"]


def test_the_driver_speaks_on_its_end_of_the_link(fleet):
    driver = next(process for process in plan(fleet, run_folder=None, backend="hw") if process.name == "driver")
    found = process_interfaces(driver, fleet)
    assert {"/r0/odom", "/r0/battery_state", "/r0/vehicle_state", "/diagnostics"} <= found.publishes
    assert {"/r0/cmd_vel", "/r0/flight_request"} <= found.subscribes
    assert not [name for name in found.publishes | found.subscribes if name.startswith("/r1")]
    assert {"/r0/flight_request", "/r0/vehicle_state", "/r0/battery_state"} <= {topic.name for topic in topics(fleet)}


def test_the_driver_has_one_set_of_keys(fleet):
    paths = [enclave.path for enclave in enclaves(fleet, "hw")]
    assert paths.count("/testudo/r0/driver") == 1
    assert len(set(paths)) == len(paths)


def test_no_robot_is_called_driver(tmp_path):
    make_tiny_fleet(tmp_path, 1, "crazyflie_2x")
    text = (tmp_path / "fleet.yaml").read_text().replace("r0:", "driver:")
    (tmp_path / "fleet.yaml").write_text(text)
    with pytest.raises(FleetError, match="found the name 'driver'"):
        load_fleet(tmp_path / "fleet.yaml")


@pytest.mark.parametrize(
    ("uris", "hosts", "said"),
    [
        (("radio://0/80/2M/E7E7E7E701", "radio://0/90/2M/E7E7E7E702"), ("", ""), "found radio://0, which r0 has"),
        (("radio://0/80/2M/E7E7E7E701", "radio://0/90/2M/E7E7E7E702"), ("a", "b"), ""),
        (("udp://127.0.0.1:19850", "udp://127.0.0.1:19850"), ("", ""), "found udp://127.0.0.1:19850, which r0 has"),
    ],
)
def test_two_drones_at_one_radio_are_refused(tmp_path, uris, hosts, said):
    make_tiny_fleet(tmp_path, 2, "crazyflie_2x")
    file = tmp_path / "fleet.yaml"
    tables = yaml.safe_load(file.read_text())
    for robot, host in zip(tables["robots"].values(), hosts, strict=True):
        robot.update({"host": host} if host else {})
    file.write_text(yaml.safe_dump(tables, sort_keys=False))
    links = [{"profile": "crazyflie_radio", "uri": uri} for uri in uris]
    if not said:
        assert with_links(tmp_path, links)
        return
    with pytest.raises(FleetError, match=said):
        with_links(tmp_path, links)
