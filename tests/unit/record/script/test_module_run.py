"""What a module is called in reports and manifests."""

import pytest

from perfkit.options.script import ScriptConfig
from perfkit.record.script.module_run import ModuleName
from perfkit.record.script.runner import _ScriptContext


@pytest.mark.parametrize(("name", "workload"), [("a.b.train", "train"), ("a", "a"), ("a.b.__main__", "b")])
def test_the_workload_is_named_after_the_module(name: str, workload: str) -> None:
    assert ModuleName(name).workload == workload


def test_the_processes_that_a_module_starts_are_recorded_under_its_name() -> None:
    context = _ScriptContext(ModuleName("package.train"), [], ScriptConfig())
    assert context._children.script == "-m package.train"
