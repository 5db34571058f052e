"""Options and fixtures that all tests share."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

GOLDEN = Path(__file__).parent / "golden"
TRACES = Path(__file__).parent / "data" / "traces"

# No limits of time: an example may take long on a machine that other programs share.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
untimed = settings.get_profile("untimed")
settings.register_profile("quick", untimed, max_examples=25)
# The same examples each time: what CI says of a commit does not depend on chance. `quick` finds new ones.
settings.register_profile("full", untimed, max_examples=100, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


def pytest_sessionstart() -> None:
    """Let SIGINT and SIGHUP end the processes that tests start, and let lines have 80 characters.

    A shell, nohup, cron and some CI systems start pytest with these signals ignored, and children inherit that.
    """
    os.environ.pop("COLUMNS", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let garbage collections pass over what the imports made: with torch and pandas, a million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter end as it always does: what it clears last may need what is frozen."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give each test an empty cache, and keep cache files away from the traces."""
    monkeypatch.setenv("PERFKIT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def shared_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of `shared_cache`."""
    return tmp_path_factory.mktemp("shared-cache")


@pytest.fixture
def shared_cache(own_cache: None, shared_cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Analyse each trace once for all tests that use this, because their subject is what follows."""
    monkeypatch.setenv("PERFKIT_CACHE_DIR", str(shared_cache_folder))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a golden file, ignoring trailing blanks; `--update-golden` writes the file."""

    def check(text: str, name: str) -> None:
        path = GOLDEN / name
        stripped = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(stripped, encoding="utf-8")
        assert path.exists(), f"no golden file {name}: run pytest with --update-golden and read it"
        assert stripped == path.read_text(encoding="utf-8")

    return check


@pytest.fixture
def real_traces() -> Path:
    """Return the folder of real traces, recorded by programs other than perfkit."""
    return TRACES


OF_RANKS = ("GLOO_", "MASTER_", "PERFKIT_", "TORCH_FR_")
"""Beginnings of the variables that connect ranks. Others, such as log levels and folders of caches, torch sets too."""


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a module whose tests leave a process group, or a variable of one, to those of the next module.

    What later tests start would inherit such as `GLOO_SOCKET_IFNAME`. All new variables are removed first, so that only
    the module that left them fails.
    """
    before = set(os.environ)
    yield
    left = [name for name in os.environ if name not in before and not name.startswith("PYTEST_")]
    for name in left:
        del os.environ[name]
    distributed = sys.modules.get("torch.distributed")
    joined = distributed is not None and distributed.is_available() and distributed.is_initialized()
    if distributed is not None and joined:
        distributed.destroy_process_group()
    assert not joined, f"the tests of {request.node.nodeid} leave a process group"
    left = [name for name in left if name.startswith(OF_RANKS)]
    assert not left, f"the tests of {request.node.nodeid} leave environment variables: {left}"
