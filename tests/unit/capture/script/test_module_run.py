"""What a module is called in reports."""

import pytest

from perfkit.capture.script.module_run import ModuleName


@pytest.mark.parametrize(("name", "workload"), [("a.b.train", "train"), ("a", "a"), ("a.b.__main__", "b")])
def test_the_workload_is_named_after_the_module(name: str, workload: str) -> None:
    assert ModuleName(name).workload == workload
