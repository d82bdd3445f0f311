"""A file that others may read is whole or as it was; dated folders have one form of name."""

import re

import pytest

from testudo_deploy.files.atomic_files import dated_folder, whole_file, write_whole


def test_a_file_is_as_it_was_until_the_new_one_is_whole(tmp_path):
    file = tmp_path / "robot.toml"
    write_whole(file, "before")

    def fail_half_way():
        with whole_file(file) as partial:
            partial.write_text("half")
            assert (partial.suffix, file.read_text()) == (".toml", "before")
            raise ValueError("no number")

    with pytest.raises(ValueError, match="no number"):
        fail_half_way()
    assert file.read_text() == "before"
    write_whole(file, "after")
    assert file.read_text() == "after"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "file.txt", "text")


def test_dated_folders_sort_by_time_and_say_what_they_hold():
    assert re.fullmatch(r"runs/\d{4}-\d\d-\d\d-\d{6}", str(dated_folder("runs")))
    assert re.fullmatch(r"runs/\d{4}-\d\d-\d\d-\d{6}-swap", str(dated_folder("runs", "swap")))
