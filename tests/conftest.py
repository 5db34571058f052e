"""Options and fixtures that all tests share."""

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
TRACES = Path(__file__).parent / "data" / "traces"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let no test find what another left, nor leave anything beside the traces."""
    monkeypatch.setenv("PERFKIT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a golden file, line by line without trailing blanks; `--update-golden` writes it."""

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
    """The folder of real traces recorded by other people's programs."""
    return TRACES
