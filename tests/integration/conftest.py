"""What holds for all tests that start real processes."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try a test that failed once more: what is wrong fails again, and pytest says what was run twice.

    Processes of torch that meet, train and are killed on two cores which other programs share are disturbed now and
    then by what no test can foresee.
    """
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("flaky") is None:
            item.add_marker(pytest.mark.flaky(reruns=1))
