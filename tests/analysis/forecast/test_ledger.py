"""No entry of a ledger can be changed, removed, inserted or moved unseen."""

import json
from functools import partial

import pytest

from testudo_analysis.forecast.forecast import ForecastError, content_hash
from testudo_analysis.forecast.ledger import FORECAST, SCORE, append_entry, check_listed, read_ledger


@pytest.fixture
def ledger(tmp_path):
    file = tmp_path / "deep" / "ledger.jsonl"
    for k in range(4):
        append_entry(file, FORECAST if k % 2 == 0 else SCORE, {"forecast": f"{k // 2}", "value": k})
    return file


def test_entries_come_back_in_order_each_with_the_hash_of_the_one_before_it(ledger):
    entries = read_ledger(ledger)
    assert [(entry.kind, entry.content) for entry in entries[:2]] == [
        (FORECAST, {"forecast": "0", "value": 0}),
        (SCORE, {"forecast": "0", "value": 1}),
    ]
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [line["previous"] for line in lines] == ["", *(line["sha256"] for line in lines[:-1])]
    check_listed(entries, "1", ledger)
    with pytest.raises(ForecastError, match="does not list the forecast 7"):
        check_listed(entries, "7", ledger)


def changed(lines):
    lines[1] = lines[1].replace('"value": 1', '"value": 5')


def rehashed(lines):  # who changes an entry, and computes its own hash again, breaks the next one
    values = {**json.loads(lines[1]), "value": 5}
    del values["sha256"]
    lines[1] = json.dumps({**values, "sha256": content_hash(values)})


def swapped(lines):
    lines[1], lines[2] = lines[2], lines[1]


FAULTS = {
    "changed": (changed, "line 2: was changed"),
    "changed with its hash": (rehashed, "line 3: does not follow the line before it"),
    "removed": (lambda lines: lines.pop(1), "line 2: does not follow"),
    "first removed": (lambda lines: lines.pop(0), "line 1: does not follow"),
    "repeated": (lambda lines: lines.insert(1, lines[0]), "line 2: does not follow"),
    "moved": (swapped, "line 2: does not follow"),
    "cut": (lambda lines: lines.__setitem__(3, lines[3][:20]), "line 4: found no entry"),
    "not JSON": (lambda lines: lines.__setitem__(0, "[]"), "line 1: found no entry"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_changed_ledger_is_found_and_nothing_is_added(ledger, fault):
    change, text = FAULTS[fault]
    lines = ledger.read_text().splitlines()
    change(lines)
    ledger.write_text("\n".join(lines) + "\n")
    for use in (read_ledger, partial(append_entry, kind=SCORE, content={"forecast": "0"})):
        with pytest.raises(ForecastError, match=text):
            use(ledger)
    assert ledger.read_text().splitlines() == lines
