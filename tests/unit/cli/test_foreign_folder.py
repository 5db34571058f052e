"""Work in a folder from somebody else, such as an unpacked archive, whose links lead to the user's own files."""

import os
from pathlib import Path

import msgspec
import pytest

from perfkit.cli import main
from perfkit.errors import StoreError
from perfkit.pipeline.summarize import Options
from perfkit.storage import cache
from perfkit.tools.sweep.folder import SweepFolder
from perfkit.tools.sweep.subprocess_group import Signals, run_process
from tests.support.traces.hostile import harmless, make_runs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Files of the user that nothing may change."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("authorized_keys", "runs.html", "one.html", "one.pftrace"):
        (home / name).write_text("mine")
    return home


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs, in which the user works."""
    folder = tmp_path / "foreign"
    for run, name in zip(make_runs(folder / "runs", harmless), ("one", "two"), strict=True):
        run.rename(run.with_name(name))
    monkeypatch.chdir(folder)
    return folder


def untouched(home: Path) -> bool:
    return {path.read_text() for path in home.iterdir()} == {"mine"} and len(list(home.iterdir())) == 4


def test_links_at_the_names_of_temporary_cache_files(
    foreign: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names that the cache, beside the traces, once had, for this process."""
    monkeypatch.delenv("PERFKIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = msgspec.msgpack.encode(Options())
    prints = filter(None, map(cache.fingerprint, foreign.glob("runs/*/*.json.gz")))
    keys = {cache._key(one.stat.content, options) for one in prints}
    assert keys
    for run in foreign.glob("runs/*"):
        old = run / ".perfkit-cache"
        old.mkdir()
        for key in keys:
            (old / f".{key}.result.{os.getpid()}.tmp").symlink_to(home / "authorized_keys")
    assert main(["analyze", "runs", "-f", "json"]) == 0
    assert untouched(home)


@pytest.mark.parametrize("kind", ["folder", "file", "dangling", "pipe"])
@pytest.mark.timeout(200)  # a pipe without a reader blocks its writer
def test_a_page_whose_path_the_user_has_not_chosen(
    foreign: Path, home: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "folder":
        (foreign / "reports").symlink_to(home)
    else:
        (foreign / "reports").mkdir()
        page = foreign / "reports" / "runs.html"
        if kind == "pipe":
            os.mkfifo(page)
        else:
            page.symlink_to(home / ("runs.html" if kind == "file" else "new"))
    assert main(["analyze", "runs", "--html"]) == 1
    assert "is a link or a device" in capsys.readouterr().err
    assert untouched(home)


@pytest.mark.parametrize("command", [["analyze", "runs", "-o"], ["compare", "runs/one", "runs/two", "-o"]])
def test_a_report_replaces_a_link(foreign: Path, home: Path, command: list[str]) -> None:
    (foreign / "r.json").symlink_to(home / "authorized_keys")
    assert main([*command, "r.json"]) == 0
    assert not (foreign / "r.json").is_symlink()
    assert untouched(home)


def test_a_merged_timeline_replaces_a_link(foreign: Path, home: Path) -> None:
    (foreign / "one.pftrace").symlink_to(home / "one.pftrace")
    assert main(["merge", "runs/one", "--ranks", "0"]) == 0
    assert not (foreign / "one.pftrace").is_symlink()
    assert untouched(home)


def test_the_files_of_a_sweep(foreign: Path, home: Path) -> None:
    for name in ("sweep.json", ".lock", "log"):
        (foreign / name).symlink_to(home / "new")
    folder = SweepFolder(foreign)
    folder.write_records([])
    with pytest.raises(StoreError, match="symbolic link"):
        run_process(["true"], foreign / "log", Signals(), None)
    with pytest.raises(StoreError, match="symbolic link"), folder.locked():
        pass
    assert not (foreign / "sweep.json").is_symlink()
    assert untouched(home)
