"""`perfkit.data_loading()` and `perfkit run SCRIPT --data-marker`: what is marked, and what the program sees of it."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import perfkit
from perfkit.errors import UsageError
from perfkit.options.script import ScriptConfig
from perfkit.phases import DATA_LOADING
from perfkit.record.loading_mark import while_loading
from perfkit.record.script.hooks.marked_loading import MarkedModules, compile_marked, mark_annotations

SOURCE = '''
import functools

def other():
    return "other"

@functools.lru_cache
def get_batch(size, *, scale=1):
    """A batch."""
    return [scale] * size

class Data:
    @staticmethod
    def get_batch_of(size):
        return get_batch(size)

    @property
    def get_batch_size(self):
        return 8

def get_batches(count):
    for number in range(count):
        sent = yield number
        if sent:
            yield sent
    return "all"

def get_batch_that_fails():
    raise ValueError("no data")
'''


class Spans:
    def __init__(self) -> None:
        self.count = self.open = 0

    def begin(self) -> None:
        self.count += 1
        self.open += 1

    def end(self) -> None:
        self.open -= 1


@pytest.fixture
def spans() -> Any:
    found = Spans()
    undo = while_loading(found.begin, found.end)
    yield found
    undo()
    assert not found.open


@pytest.fixture
def program(tmp_path: Path) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "program"}
    file = tmp_path / "program.py"
    file.write_text(SOURCE)
    exec(compile_marked(SOURCE.encode(), str(file), re.compile("get_batch")), namespace)  # noqa: S102
    return namespace


def annotations(action: Callable[[], object]) -> list[str]:
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        action()
    return [event.name for event in recorded.events() or () if event.is_user_annotation]


def test_a_mark_is_an_annotation_and_is_told(spans: Spans) -> None:
    def load() -> None:
        with perfkit.data_loading(), record_function("inner"), perfkit.data_loading():
            assert spans.open == 2

    assert annotations(load) == [DATA_LOADING, "inner", DATA_LOADING]
    assert annotations(perfkit.data_loading()(lambda: torch.ones(2))) == [DATA_LOADING]
    assert spans.count == 3


def test_a_mark_that_fails_ends(spans: Spans) -> None:
    with pytest.raises(ValueError, match="mine"), perfkit.data_loading():
        raise ValueError("mine")
    assert spans.count == 1


def test_a_program_without_torch_can_keep_its_marks() -> None:
    script = "import sys, perfkit\nwith perfkit.data_loading(): pass\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_matching_functions_of_a_script_are_marked(program: dict[str, Any], spans: Spans) -> None:
    assert program["other"]() == "other"
    assert spans.count == 0
    assert program["get_batch"](2, scale=3) == [3, 3]
    assert spans.count == 1
    assert program["get_batch"](2, scale=3) == [3, 3]  # the cache that the program put around it answers
    assert spans.count == 1
    assert program["Data"].get_batch_of(4) == [1] * 4
    assert program["Data"]().get_batch_size == 8
    assert spans.count == 4


def test_a_marked_function_looks_as_before(program: dict[str, Any]) -> None:
    function = inspect.unwrap(program["get_batch"])
    assert (program["get_batch"].__name__, program["get_batch"].__doc__) == ("get_batch", "A batch.")
    assert str(inspect.signature(program["get_batch"])) == "(size, *, scale=1)"
    assert function.__code__.co_firstlineno == SOURCE.splitlines().index("@functools.lru_cache") + 1
    assert inspect.isgeneratorfunction(program["get_batches"])
    first = inspect.unwrap(program["get_batch_that_fails"]).__code__.co_firstlineno
    assert SOURCE.splitlines()[first - 1] == "def get_batch_that_fails():"


def test_of_a_generator_each_value_is_a_load(program: dict[str, Any], spans: Spans) -> None:
    assert list(program["get_batches"](3)) == [0, 1, 2]
    assert spans.count == 4
    batches = program["get_batches"](2)
    assert [next(batches), batches.send("x"), spans.open] == [0, "x", 0]
    batches.close()

    def all_of() -> Any:
        return (yield from program["get_batches"](1))

    outer = all_of()
    next(outer)
    with pytest.raises(StopIteration) as end:
        next(outer)
    assert end.value.value == "all"


def test_an_error_of_a_marked_function_is_its_own(program: dict[str, Any], spans: Spans) -> None:
    with pytest.raises(ValueError, match="no data"):
        program["get_batch_that_fails"]()
    assert (spans.count, spans.open) == (1, 0)


def test_modules_of_the_script_s_folder_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: Spans
) -> None:
    elsewhere = tmp_path / "site-packages"
    elsewhere.mkdir()
    for folder, name in ((tmp_path, "own_data"), (elsewhere, "installed_data")):
        (folder / f"{name}.py").write_text("def get_batch():\n    return 1\n")
        monkeypatch.syspath_prepend(str(folder))
    finder = MarkedModules(tmp_path.resolve(), re.compile("get_batch"))
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    own, installed = (__import__(name) for name in ("own_data", "installed_data"))
    assert isinstance(own, ModuleType)
    assert (own.get_batch(), spans.count) == (1, 1)
    assert (installed.get_batch(), spans.count) == (1, 1)
    assert not list(tmp_path.glob("__pycache__/own_data*")), "code with marks is not cached"


def test_annotations_that_match_are_loading(monkeypatch: pytest.MonkeyPatch, spans: Spans) -> None:
    kind = torch.autograd.profiler.record_function
    for name in ("__enter__", "__exit__"):
        monkeypatch.setattr(kind, name, getattr(kind, name))
    mark_annotations(re.compile("^data"))

    def step() -> None:
        with record_function("data_preprocessing"), record_function("inner"):
            pass

    assert sorted(annotations(step)) == ["data_preprocessing", "inner", DATA_LOADING]
    assert spans.count == 1


def test_the_option_is_checked() -> None:
    with pytest.raises(UsageError, match=r"--data-marker '\[' is not a regular expression"):
        ScriptConfig(data_marker="[")
