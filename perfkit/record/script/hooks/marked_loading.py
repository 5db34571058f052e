"""`perfkit run SCRIPT --data-marker`: functions of the program, and annotations, whose names match are data loading.

Functions are marked where they are defined, as if the program had decorated them with `perfkit.data_loading()`: in the
script, and in modules of its folder. No other call costs anything.
"""

import ast
import functools
import inspect
import io
import re
import sys
from collections.abc import Callable, Generator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from perfkit.record.loading_mark import data_loading
from perfkit.record.patching import Function, wrap_function

_MARK: Final = f"__import__({__name__!r}, fromlist=['mark']).mark"
"""The decorator: an expression that needs no name of the program."""
_matched: Final[set[str]] = set()


def has_matched() -> bool:
    return bool(_matched)


def mark(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose calls are data loading; of a generator, the time that each value takes."""
    _matched.add(function.__name__)
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generating(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            values, sent = function(*args, **kwargs), None
            try:
                while True:
                    try:
                        with data_loading():
                            value = values.send(sent)
                    except StopIteration as end:
                        return end.value
                    sent = yield value
            finally:
                values.close()

        return generating

    @functools.wraps(function)
    def marked(*args: Any, **kwargs: Any) -> Any:
        with data_loading():
            return function(*args, **kwargs)

    return marked


def compile_marked(source: bytes, path: str, pattern: "re.Pattern[str]") -> CodeType:
    """Compile a file, with a mark at each function whose name matches."""
    tree = ast.parse(source, path)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and pattern.search(node.name):
            # The innermost decorator; with the function's line, which would be that of the first one otherwise.
            decorator = ast.parse(_MARK, mode="eval").body
            for part in ast.walk(decorator):
                ast.copy_location(part, node)
            node.decorator_list.append(decorator)
    return compile(tree, path, "exec", dont_inherit=True)


class MarkedModules(MetaPathFinder):
    """Marks functions in the modules of a folder."""

    def __init__(self, folder: Path, pattern: "re.Pattern[str]") -> None:
        self._folder = folder
        self._pattern = pattern

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the other finders' spec of a module, whose functions will be marked if it is one of the folder."""
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next((spec for finder in others if (spec := finder.find_spec(fullname, path, target))), None)
        if spec is not None and type(spec.loader) is SourceFileLoader and self._is_program(spec.loader.path):
            spec.loader = _MarkingLoader(spec.loader.name, spec.loader.path, self._pattern)
        return spec

    def _is_program(self, path: str) -> bool:
        file = Path(path).resolve()
        return file.is_relative_to(self._folder) and not {"site-packages", "dist-packages"}.intersection(file.parts)


class _MarkingLoader(SourceFileLoader):
    """Compiles the file each time: what is cached beside it has no marks."""

    def __init__(self, fullname: str, path: str, pattern: "re.Pattern[str]") -> None:
        super().__init__(fullname, path)
        self._pattern = pattern

    def get_code(self, fullname: str) -> CodeType | None:
        with io.open_code(self.get_filename(fullname)) as stream:
            return compile_marked(stream.read(), self.path, self._pattern)


def mark_annotations(pattern: "re.Pattern[str]") -> None:
    """Let annotations of the program (`record_function`) whose names match be data loading; torch is imported."""
    from torch.autograd.profiler import record_function

    matches = functools.lru_cache(lambda name: pattern.search(name) is not None)

    def around_enter(enter: Function) -> Function:
        def hooked(self: Any) -> Any:
            if matches(self.name):
                _matched.add(self.name)
                self._perfkit_loading = data_loading()
                self._perfkit_loading.__enter__()
            return enter(self)

        return hooked

    def around_exit(leave: Function) -> Function:
        def hooked(self: Any, *error: Any) -> Any:
            leave(self, *error)
            loading = vars(self).pop("_perfkit_loading", None)
            if loading is not None:
                loading.__exit__(None, None, None)

        return hooked

    wrap_function(record_function, "__enter__", around_enter)
    wrap_function(record_function, "__exit__", around_exit)
