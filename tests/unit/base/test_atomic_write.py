"""Files are written whole or not at all, and never anywhere else."""

import os
import sys
from pathlib import Path

import pytest

from perfkit.base.atomic_write import atomic_write, private_folder
from perfkit.errors import StoreError


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user, outside the folder that is written to."""
    path = tmp_path / "authorized_keys"
    path.write_text("mine")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "foreign"
    path.mkdir()
    return path


def write(path: Path, text: str = "new") -> None:
    with atomic_write(path) as stream:
        stream.write(text.encode())


def test_links_at_names_that_can_be_guessed_lead_nowhere(folder: Path, victim: Path) -> None:
    target = folder / "run.json"
    for name in ("run.json", f".run.json.{os.getpid()}.tmp", f"run.json.{os.getpid()}.tmp", "run.json.tmp"):
        (folder / name).symlink_to(victim)
    write(target)
    assert victim.read_text() == "mine"
    assert not target.is_symlink()
    assert target.read_text() == "new"


def test_a_link_at_the_very_name_of_the_temporary_file_is_an_error(
    folder: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _size: "known")
    (folder / ".x.known.tmp").symlink_to(victim)
    with pytest.raises(StoreError, match="File exists"):
        write(folder / "x")
    assert victim.read_text() == "mine"
    assert (folder / ".x.known.tmp").is_symlink()


def test_a_folder_that_is_exchanged_meanwhile_is_not_followed(folder: Path, victim: Path, tmp_path: Path) -> None:
    with atomic_write(folder / "authorized_keys") as stream:
        stream.write(b"new")
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path)
    assert victim.read_text() == "mine"
    assert (tmp_path / "moved" / "authorized_keys").read_text() == "new"


def test_a_private_file_stays_private(folder: Path) -> None:
    for name, mode in (("private", 0o600), ("shared", 0o664)):
        (folder / name).touch()
        (folder / name).chmod(mode)
        write(folder / name)
        assert (folder / name).stat().st_mode & 0o777 == mode


def test_a_new_file_has_the_permissions_of_any_other(folder: Path) -> None:
    (folder / "other").touch()
    write(folder / "new")
    assert (folder / "new").stat().st_mode == (folder / "other").stat().st_mode
    with atomic_write(folder / "script", mode=0o777):
        pass
    assert os.access(folder / "script", os.X_OK)


def test_a_name_may_be_as_long_as_the_file_system_allows(folder: Path) -> None:
    for name in ("n" * 255, "é" * 127, "\U0001f600" * 63):
        write(folder / name)
        assert (folder / name).read_text() == "new"


@pytest.mark.parametrize("place", ["missing/x", "file/x"])
def test_a_folder_that_cannot_be_used_is_one_line(folder: Path, place: str) -> None:
    (folder / "file").touch()
    with pytest.raises(StoreError, match=rf"^cannot write {folder}/{place}: "):
        write(folder / place)


@pytest.mark.skipif(sys.platform != "linux", reason="the folder of all descriptors is Linux's")
def test_nothing_stays_open(folder: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    write(folder / "x")
    with pytest.raises(StoreError):
        write(folder / "missing" / "x")
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_private_folder_is_for_one_user_and_goes(folder: Path) -> None:
    with private_folder(folder / "rank0.json.gz") as private:
        assert private.parent == folder
        assert private.name.startswith(".rank0.json.gz.")  # by which the watchdog of a killed rank finds it
        assert private.stat().st_mode & 0o777 == 0o700
        (private / "x").touch()
    assert list(folder.iterdir()) == []
