"""Checks of the machine: launcher, folders, packages that break."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from perfkit.tools.doctor import checks
from perfkit.tools.doctor.checks import PACKAGES, Package, ProbeError, ask_child, check_packages


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_the_launcher_and_the_place_among_ranks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}.items():
        monkeypatch.setenv(name, value)
    check, place = checks.check_launcher()
    assert check.found.startswith("hydra: rank 3 of 8, local rank 1; on PATH: ")
    assert (place.rank, place.local_rank) == (3, 1)


def test_contradictory_variables_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "8", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    check, _ = checks.check_launcher()
    assert check.state == "problem"
    assert "RANK" in check.found


def test_without_any_launcher_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check, _ = checks.check_launcher()
    assert (check.state, check.found) == ("absent", "on PATH: none")


def test_a_folder_that_does_not_exist_yet_is_judged_by_what_is_above_it(tmp_path: Path) -> None:
    check, *_ = checks.check_folders(tmp_path / "new" / "traces")
    assert check.found.startswith(f"{tmp_path}, ")


def test_a_full_disk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12, 5_000_000))
    check, *_ = checks.check_folders(tmp_path)
    assert (check.state, check.found) == ("problem", f"{tmp_path}, 5.00 MB free")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise RuntimeError('cannot load MPI library')", "RuntimeError: cannot load MPI"),
        ("import os; os._exit(7)", "7"),
    ],
)
def test_a_package_that_breaks_or_crashes_is_a_problem_and_no_other_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, why: str
) -> None:
    (tmp_path / "broken_package.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(checks, "PACKAGES", (Package("broken_package", "run", "this"), Package("rich", "run", "that")))
    monkeypatch.setattr(checks, "_installed_version", lambda _: "1.0")
    broken, fine = check_packages()
    assert broken.state == "problem"
    assert why in broken.found
    assert (fine.state, fine.found) == ("ok", "1.0")


def test_a_package_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_installed_version", lambda _: None)
    found = list(check_packages())
    assert [check.state for check in found] == ["absent"] * len(PACKAGES)
    assert "pip install 'perfkit[parquet]'" in str(found[4].remedy)


def test_a_child_that_fails_is_reported_by_its_last_line() -> None:
    with pytest.raises(ProbeError, match=r"No module named 'perfkit\.tools\.doctor\.nothing'"):
        ask_child("perfkit.tools.doctor.nothing", "print_nothing")
