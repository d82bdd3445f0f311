"""The pause of the garbage collector ends in every case."""

import gc

import pytest

from testudo_deploy.files.collection_pause import collection_paused


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_is_as_before_even_after_an_error(was_enabled):
    before = gc.isenabled()
    (gc.enable if was_enabled else gc.disable)()
    try:
        with pytest.raises(ValueError, match="inside"):
            _fail_in_pause()
        assert gc.isenabled() == was_enabled
    finally:
        (gc.enable if before else gc.disable)()


@collection_paused()
def _fail_in_pause():
    assert not gc.isenabled()
    raise ValueError("inside")
