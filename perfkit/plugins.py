"""Registries of what can be added to perfkit: built-in tables of names, and entry points of installed packages.

A package adds to a registry in its `pyproject.toml`::

    [project.entry-points."perfkit.workloads"]
    mlp = "mypackage.mlp:MLP"

Names are listed without importing anything. A built-in name cannot be overridden: such an entry point is ignored with a
warning. A plug-in that cannot be loaded costs one line, and nothing but itself.
"""

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, TypeVar

from perfkit.errors import PluginError, UsageError

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)


class Registry(Generic[T]):
    """Names and what they stand for.

    Args:
        group: The entry-point group, `perfkit.workloads` say.
        noun: What an entry is, for messages: 'workload'.
        builtin: Name to `module:attribute`, in the order in which names are listed.
        find_problem: Takes the name and the loaded object of a plug-in; returns what is wrong with it, or None.
        reserved: Further names that plug-ins cannot take.
    """

    def __init__(
        self,
        group: str,
        noun: str,
        builtin: Mapping[str, str],
        find_problem: Callable[[str, Any], str | None],
        reserved: Collection[str] = (),
    ) -> None:
        self.group = group
        self.noun = noun
        self.builtin: Final = dict(builtin)
        self._find_problem = find_problem
        self._reserved = frozenset((*builtin, *reserved))

    def names(self) -> tuple[str, ...]:
        """Return all names: built-in ones in their order, then those of plug-ins. Imports no plug-in."""
        return (*self.builtin, *self._plugins)

    def plugin_names(self) -> tuple[str, ...]:
        """Return the names that installed packages add, sorted."""
        return tuple(self._plugins)

    def origin(self, name: str) -> str:
        """Return the package and version that add the plug-in `name`."""
        return _origin(self._plugins[name])

    @contextmanager
    def guarded(self, name: str, what: str = "failed", own: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Let any error of the code of a plug-in be one line, other than `own`; those of perfkit's own rows pass.

        Raises:
            PluginError: it did `what`.
        """
        try:
            yield
        except own:
            raise
        except Exception as error:
            if name in self.builtin:
                raise
            where = f"{self.noun} {name!r} of {self.origin(name)}"
            raise PluginError(f"{where} {what}: {type(error).__name__}: {error}") from error

    def __contains__(self, name: str) -> bool:
        return name in self.builtin or name in self._plugins

    def load(self, name: str) -> T:
        """Import what `name` stands for.

        Raises:
            UsageError: there is no such name.
            PluginError: a package adds it, and it cannot be imported or is something else.
        """
        if name in self.builtin:
            found: T = resolve(self.builtin[name])
            return found
        if name not in self._plugins:
            raise UsageError(f"unknown {self.noun} {name!r}: choose from {', '.join(self.names())}")
        return self._load_plugin(self._plugins[name])

    def load_plugins(self) -> Iterator[tuple[str, T]]:
        """Yield name and object of every plug-in that can be loaded; the others are one warning each."""
        for name, entry in self._plugins.items():
            try:
                yield name, self._load_plugin(entry)
            except PluginError as error:
                _LOG.warning("%s", error)

    def _load_plugin(self, entry: EntryPoint) -> T:
        where = f"{self.noun} {entry.name!r} of {_origin(entry)}"
        try:
            found: T = entry.load()
        except (Exception, SystemExit) as error:  # foreign code: whatever is wrong with it is one line
            raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
        problem = self._find_problem(entry.name, found)
        if problem:
            raise PluginError(f"{where} {problem}")
        return found

    @cached_property
    def _plugins(self) -> dict[str, EntryPoint]:
        added: dict[str, EntryPoint] = {}
        found: Iterable[EntryPoint] = _entry_points(tuple(sys.path)).select(group=self.group)
        for entry in sorted(found, key=lambda entry: (entry.name, _origin(entry))):
            if entry.name in self._reserved or entry.name in added:
                owner = _origin(added[entry.name]) if entry.name in added else "perfkit"
                message = "%s %r of %s is ignored: %s already has one of that name"
                _LOG.warning(message, self.noun, entry.name, _origin(entry), owner)
            else:
                added[entry.name] = entry
        return added


def installed(group: str) -> list[tuple[str, str, str]]:
    """Return name, target and origin of each entry point of a group, without importing any."""
    return sorted((entry.name, entry.value, _origin(entry)) for entry in entry_points(group=group))


@lru_cache(maxsize=1)
def _entry_points(_path: tuple[str, ...]) -> Any:  # `SelectableGroups` in Python 3.11, then `EntryPoints`
    """Return the entry points of the packages on a path: reading them takes milliseconds, and there are ten groups."""
    return entry_points()


def resolve(target: str) -> Any:
    """Return what `module:name` names; the module is imported on first use."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def on_use(target: str) -> Callable[[Any], Any]:
    """Return a function of one argument that is what `module:name` names, whose module is imported on first use."""
    return lambda argument: resolve(target)(argument)


def _origin(entry: EntryPoint) -> str:
    """Return the package and version that an entry point comes from."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"


def instance_of(kind: type, noun: str) -> Callable[[str, Any], str | None]:
    """Return a `find_problem` that accepts instances of `kind`."""
    return lambda _, found: None if isinstance(found, kind) else f"is not a {noun} but a {type(found).__name__}"
