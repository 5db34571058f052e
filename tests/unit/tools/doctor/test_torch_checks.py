"""What is concluded from what torch answers."""

from importlib import metadata
from typing import Any

import pytest

from perfkit.records.tools import Check
from perfkit.tools.doctor.checks import check_torch, torch_checks

H100: dict[str, Any] = {
    "version": "2.9.0",
    "toolkit": {"cuda": "13.0", "hip": None},
    "device": "cuda:1",
    "devices": [{"result": "NVIDIA H100, 80 GB"}] * 2,
    "backends": {"gloo": {"result": ""}, "nccl": {"result": "2.28.3, "}},
    "profiler": {"result": {"cpu_op": 5, "kernel": 1}},
}


def checks(drivers: tuple[str, ...] = (), **answer: Any) -> dict[str, Check]:
    return {check.name: check for check in torch_checks(H100 | answer, list(drivers))}


def test_a_machine_where_everything_works_needs_nothing() -> None:
    found = checks()
    assert {check.state for check in found.values()} == {"ok"}
    assert not any(check.remedy for check in found.values())
    assert found["torch"].found == "2.9.0, built for cuda 13.0"
    assert found["devices"].found == "cuda:1 of 2: NVIDIA H100, 80 GB"
    assert found["nccl"].found == "2.28.3, works in a group of one rank"


def test_a_cpu_without_drivers_is_no_problem() -> None:
    assert checks(device=None, devices=[])["devices"].state == "ok"


def test_a_driver_without_a_device_is_a_problem() -> None:
    one = checks(("NVIDIA",), device=None, devices=[])["devices"]
    assert one.state == "problem"
    assert one.found == "NVIDIA device files, but torch finds none"


def test_kernels_that_are_not_recorded_are_a_problem_of_devices_only() -> None:
    silent = {"result": {"cpu_op": 5, "kernel": 0}}
    one = checks(profiler=silent)["profiler"]
    assert (one.state, one.found) == ("problem", "no kernels of cuda:1 are recorded")
    assert checks(profiler=silent, device=None, devices=[])["profiler"].state == "ok"


def test_a_backend_that_fails_has_its_remedy() -> None:
    one = checks(backends={"gloo": {"error": "RuntimeError: Unable to resolve hostname"}})["gloo"]
    assert one.state == "problem"
    assert "GLOO_SOCKET_IFNAME" in str(one.remedy)
    assert "CCL_LOG_LEVEL" in str(checks(backends={"xccl": {"error": "RuntimeError: no"}})["xccl"].remedy)
    assert "installation" in str(checks(backends={"ucc": {"error": "RuntimeError: no"}})["ucc"].remedy)


def test_an_old_torch_is_a_problem() -> None:
    assert checks(version="2.4.1")["torch"].state == "problem"
    assert checks(version="2.10.0a0+git123")["torch"].state == "ok"


def test_without_torch_it_is_said_that_analysing_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    (one,) = check_torch(0)
    assert one.state == "absent"
    assert str(one.remedy).startswith("not needed to analyse traces")
