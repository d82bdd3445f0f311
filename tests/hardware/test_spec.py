"""Every shipped robot loads; a wrong file ends in an error that names file, key and reason."""

import copy
import tomllib

import pytest

from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import KINDS, QUANTITIES
from testudo_hardware.spec import SpecError, load_robot, parse_robot, robot_files

ROBOTS = sorted(robot_files())
REQUIRED = sorted(key for key, rule in QUANTITIES.items() if rule.default is None)


def tables_of(name):
    return tomllib.loads(robot_files()[name].read_text())


@pytest.fixture
def tables():
    return copy.deepcopy(tables_of("gritsbot_x"))


def refused(tables, *words):
    """Assert that the tables are refused with all the words, the name of the file among them."""
    with pytest.raises(SpecError) as caught:
        parse_robot(tables, "mine.toml")
    text = str(caught.value)
    assert text.startswith("mine.toml: ")
    for word in words:
        assert word in text, text


def test_the_robots_that_the_issues_name_are_there():
    assert {
        "gritsbot_x",
        "turtlebot3_burger",
        "turtlebot4",
        "irobot_create",
        "crazyflie_2x",
        "robomaster_s1",
    } <= set(ROBOTS)


@pytest.mark.parametrize("name", ROBOTS)
def test_every_registered_robot_loads(name):
    spec = load_robot(name)
    assert spec.name == name
    assert spec.dimension == (3 if spec.kind == "velocity_point" else 2)
    alone_s = spec.dead_man_s if spec.brakes_in_silence else spec.silence["silence.level_after"].value
    assert spec.hold_s == alone_s + spec.control_period_s
    assert spec.control_point_speed_m_s >= spec.speed_limit_m_s * (1 - 1e-3)
    for quantity in spec.quantities.values():
        assert quantity.low <= quantity.value <= quantity.high
        assert quantity.source


@pytest.mark.parametrize("name", ROBOTS)
def test_a_description_survives_the_way_through_its_tables(name):
    spec = load_robot(name)
    again = parse_robot(spec.to_dict(), "again")
    assert again.to_dict() == spec.to_dict()
    assert again.sha256 == spec.sha256


def test_a_robot_is_found_by_path_as_well_as_by_name(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(robot_files()["gritsbot_x"].read_bytes())
    assert load_robot(path).sha256 == load_robot("gritsbot_x").sha256
    assert load_robot(str(path)).sha256 == load_robot("gritsbot_x").sha256


def test_a_missing_robot_is_refused_with_the_known_names(tmp_path):
    with pytest.raises(SpecError, match=r"robot 'gritsbot' is not known; known are .*gritsbot_x"):
        load_robot("gritsbot")
    with pytest.raises(SpecError, match=r"none\.toml: no such robot file"):
        load_robot(tmp_path / "none.toml")


@pytest.mark.parametrize("raw", [b"schema = ", b"a = 1\na = 2", b"\xff\xfe", b"[geometry"])
def test_bad_toml_is_refused_with_the_name_of_the_file(tmp_path, raw):
    path = tmp_path / "bad.toml"
    path.write_bytes(raw)
    with pytest.raises(SpecError, match=r"bad\.toml: not a TOML file"):
        load_robot(path)


def test_an_error_of_a_robot_file_is_one_that_a_user_can_mend():
    assert issubclass(SpecError, TestudoError)


@pytest.mark.parametrize("schema", [None, "testudo/robot/2", 1])
def test_another_schema_is_refused(tables, schema):
    tables["schema"] = schema
    refused(tables, "schema", repr(schema), "testudo/robot/1")


def test_an_unknown_kind_is_refused_with_the_known_ones(tables):
    tables["kind"] = "hexapod"
    refused(tables, "kind", "'hexapod'", *KINDS)


@pytest.mark.parametrize("key", ["name", "description"])
@pytest.mark.parametrize("value", [None, "", 3])
def test_name_and_description_must_be_texts(tables, key, value):
    tables[key] = value
    refused(tables, f"{key}: ", repr(value), "text")


def test_an_unknown_key_is_refused_with_the_known_ones(tables):
    tables["limits"]["sped"] = tables["limits"]["speed"]
    refused(tables, "limits.sped: unknown key", "speed")


def test_an_unknown_table_is_refused_with_the_known_ones(tables):
    tables["limit"] = {}
    refused(tables, "limit: unknown table", "limits")
    tables["limit"] = 3
    refused(tables, "limit: unknown table")


def test_a_key_of_another_kind_is_refused():
    tables = tables_of("crazyflie_2x")
    tables["geometry"]["wheel_base"] = tables_of("gritsbot_x")["geometry"]["wheel_base"]
    refused(tables, "geometry.wheel_base: unknown key", "velocity_point")


def test_a_holonomic_base_moves_in_the_plane_and_has_no_turn_rate():
    """Its heading is held, so that a turn rate in its file is one that nothing would obey."""
    tables = tables_of("robomaster_s1")
    assert parse_robot(tables, "mine.toml").dimension == 2
    tables["limits"]["turn_rate"] = tables_of("gritsbot_x")["limits"]["turn_rate"]
    refused(tables, "limits.turn_rate: unknown key", "holonomic")


def test_what_a_file_need_not_have_has_its_default_and_leaves_the_hash(tables):
    without = parse_robot(tables, "mine.toml")
    assert without.turn_slip_s_rad == 0.0
    assert "dynamics.turn_slip" not in without.quantities
    assert "turn_slip" not in without.to_dict()["dynamics"]
    tables["dynamics"]["turn_slip"] = {"value": 1.5, "unit": "s/rad", "source": "measured", "interval": [1.0, 2.0]}
    with_it = parse_robot(tables, "mine.toml")
    assert with_it.turn_slip_s_rad == 1.5
    assert parse_robot(with_it.to_dict(), "again").sha256 == with_it.sha256 != without.sha256


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_key_is_refused_with_the_line_to_write(tables, key):
    section, name = key.split(".")
    del tables[section][name]
    refused(tables, f"{key}: missing", f"{name} = {{", f'unit = "{QUANTITIES[key].unit}"')


def test_a_missing_table_is_refused(tables):
    del tables["timing"]
    refused(tables, "timing.control_period: missing")


@pytest.mark.parametrize("key", REQUIRED)
def test_a_bare_number_is_refused_for_its_missing_unit(tables, key):
    section, name = key.split(".")
    tables[section][name] = tables[section][name]["value"]
    refused(tables, f"{key}: missing unit", QUANTITIES[key].unit)


@pytest.mark.parametrize("unit", [None, "mm", "", 3])
def test_a_wrong_unit_is_refused(tables, unit):
    tables["geometry"]["body_radius"]["unit"] = unit
    refused(tables, "geometry.body_radius.unit", repr(unit), "'m'")


@pytest.mark.parametrize("source", [None, "", 3])
def test_a_number_without_a_source_is_refused(tables, source):
    tables["geometry"]["body_radius"]["source"] = source
    refused(tables, "geometry.body_radius.source", "missing")


def test_an_unknown_key_of_a_quantity_is_refused(tables):
    tables["geometry"]["body_radius"]["tolerance"] = 0.1
    refused(tables, "geometry.body_radius.tolerance", "unknown key")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), True, "1", None, [1.0], 10**400])
def test_what_is_not_a_finite_number_is_refused(tables, value):
    tables["limits"]["speed"]["value"] = value
    refused(tables, "limits.speed.value", "finite number")
    tables["limits"]["speed"]["value"] = 0.2
    tables["limits"]["speed"]["interval"] = [0.1, value]
    refused(tables, "limits.speed.interval", "finite number")


@pytest.mark.parametrize("interval", [0.1, [0.1], [0.1, 0.2, 0.3], {}, "ab"])
def test_an_interval_must_be_two_numbers(tables, interval):
    tables["dynamics"]["velocity_lag"]["interval"] = interval
    refused(tables, "dynamics.velocity_lag.interval", "[low, high]")


@pytest.mark.parametrize("interval", [[0.09, 0.1], [0.06, 0.07], [0.1, 0.06]])
def test_an_interval_out_of_order_is_refused(tables, interval):
    tables["dynamics"]["velocity_lag"]["interval"] = interval
    refused(tables, "dynamics.velocity_lag.interval", "out of order")


@pytest.mark.parametrize(("key", "value"), [("dynamics.velocity_lag", 3.0), ("timing.dead_man", 9)])
def test_an_implausible_number_is_refused(tables, key, value):
    section, name = key.split(".")
    tables[section][name] = {"value": value, "unit": "s", "source": "guess"}
    refused(tables, key, "expected within")


@pytest.mark.parametrize(
    ("key", "value"),
    [("timing.dead_man", 0.01), ("limits.speed", 0.21), ("geometry.wheel_base", 0.2)],
)
def test_limits_out_of_order_are_refused(tables, key, value):
    section, name = key.split(".")
    tables[section][name]["value"] = value
    tables[section][name].pop("interval", None)
    refused(tables, key, "out of order")


def test_the_hash_changes_with_a_number_and_not_with_a_comment(tmp_path):
    text = robot_files()["gritsbot_x"].read_text()
    commented, edited = tmp_path / "commented.toml", tmp_path / "edited.toml"
    commented.write_text("# a remark\n" + text.replace(" = {", "   =   {"))
    edited.write_text(text.replace("value = 0.0675", "value = 0.0676"))
    original = load_robot("gritsbot_x").sha256
    assert load_robot(commented).sha256 == original
    assert load_robot(edited).sha256 != original


def test_what_a_drone_does_in_silence_is_one_table_and_part_of_the_hash():
    spec = load_robot("crazyflie_2x")
    assert spec.brakes_in_silence
    tables = tables_of("crazyflie_2x")
    tables["silence"]["onboard_brake"]["value"] = 0
    stock = parse_robot(tables, "mine.toml")
    assert not stock.brakes_in_silence, "an unmodified Crazyflie levels out; it does not brake"
    assert parse_robot(stock.to_dict(), "again").sha256 == stock.sha256 != spec.sha256
    del tables["silence"]
    assert parse_robot(tables, "mine.toml").brakes_in_silence, "without the table the driver's brake is the vehicle's"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("onboard_brake", 0.5, "expected 0 or 1"),
        ("level_after", 0.05, "limits out of order"),
        ("cut_after", 0.4, "limits out of order"),
        ("coast_drag", None, "silence.coast_drag: missing"),
    ],
)
def test_a_wrong_table_of_silence_is_refused(key, value, said):
    tables = tables_of("crazyflie_2x")
    if value is None:
        del tables["silence"][key]
    else:
        tables["silence"][key]["value"] = value
        tables["silence"][key].pop("interval", None)
    refused(tables, "silence.", said)


def test_a_robot_on_the_ground_has_no_silence_and_no_downwash():
    tables = tables_of("gritsbot_x")
    tables["silence"] = tables_of("crazyflie_2x")["silence"]
    refused(tables, "silence: unknown table")
