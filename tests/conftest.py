import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("unstarve", deadline=None)  # a busy machine is no failure
settings.load_profile("unstarve")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is measured in real time is measured anew where it comes out wrong, twice at most: a machine that others use may
    stop for longer than any bound allows for, though hardly three times in a row at the same place."""
    for item in items:
        if item.get_closest_marker("live"):
            item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.fixture(autouse=True)
def own_history(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a history of the test's own: no test, and no process it starts, writes into the user's."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("UNSTARVE_HOME", str(home))
    return home
