"""Finds the qualified names of the modules that a profiler has recorded.

torch's Python tracer calls a module `nn.Module: Attention_3`: its class, and its place among the modules of that class
in order of their first calls in the trace (`PythonIDVisitor` in torch/csrc/profiler/collection.cpp). Its events keep
the address of each module, which tells which module of this process it was: one that exists both when the profiler
starts and when it stops has had its address all the time, so that nothing else can be meant by it.
"""

import gc
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from weakref import ref

from torch import nn
from torch.profiler import profile

from perfkit.trace.module_names import LONGEST_NAME, MOST_MODULES, MOST_NAMES

_LOG: Final = logging.getLogger(__name__)

_PREFIX: Final = "nn.Module: "
_MOST_EVENTS: Final = 2_000_000
"""Events that are looked at, in about 6 us each, while all ranks wait: a few steps of the largest models."""
_MOST_VISITS: Final = 4 * MOST_MODULES
_ALWAYS_WRAPPED: Final = frozenset(("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
"""Attributes by which wrappers of torch (compiled, FSDP, activation checkpointing) hold what they wrap."""
_WRAPPERS: Final = frozenset(("DistributedDataParallel", "DataParallel", "DeepSpeedEngine"))
"""Classes that hold what they wrap as `module`."""


class RecordedModules:
    """The modules of this process while a profiler records."""

    def __init__(self) -> None:
        self._alive: dict[int, ref[nn.Module]] = {}

    def start(self) -> None:
        # `isinstance` would run the code of objects that stand for others.
        found = (one for one in gc.get_objects() if issubclass(type(one), nn.Module))
        self._alive = {id(module): ref(module) for module in found}

    def names(self, profiler: profile) -> dict[str, tuple[str, ...]]:
        """Return the names of the modules in a stopped profiler's trace; modules of unknown name are left out."""
        alive = {address: module for address, weak in self._alive.items() if (module := weak()) is not None}
        self._alive = {}
        try:
            traced = traced_modules(profiler, alive)
        except AttributeError as error:  # torch's own interface for its memory profiler: not a stable one
            _LOG.info("modules keep their class and number: %s", error)
            return {}
        return name_modules(traced, alive.values())


def traced_modules(profiler: profile, alive: Mapping[int, nn.Module]) -> dict[str, nn.Module]:
    """Return the modules that a stopped profiler's trace contains, by class and number, of those in `alive`.

    Those whose class and number the trace has for another one, too, are left out: of classes of the same name.

    Raises:
        AttributeError: this torch does not tell.
    """
    addresses: dict[str, set[int]] = defaultdict(set)
    for event in _events(profiler):
        name = _name_of(event)
        if name.startswith(_PREFIX):
            addresses[name.removeprefix(_PREFIX)].add(event.extra_fields.module.self_ptr)
    found = {name: alive.get(next(iter(of))) for name, of in addresses.items() if len(of) == 1}
    return {name: module for name, module in found.items() if module is not None}


def _name_of(event: Any) -> str:
    try:
        return str(event.name)
    except UnicodeDecodeError:  # code that was made while the program ran has such names
        return ""


def _events(profiler: profile) -> Iterator[Any]:
    kineto: Any = getattr(profiler.profiler, "kineto_results", None)
    stack = list(reversed(kineto.experimental_event_tree()))
    for _ in range(_MOST_EVENTS):
        if not stack:
            return
        event = stack.pop()
        stack.extend(reversed(event.children))
        yield event


def name_modules(traced: Mapping[str, nn.Module], modules: Iterable[nn.Module]) -> dict[str, tuple[str, ...]]:
    """Return the names of the traced modules, without those of wrappers (DDP, compiled, FSDP).

    They are those of `nn.Module.named_modules` of the outermost module that holds them: of several such, of those that
    were called, each name after the outermost one's class.
    """
    holders: dict[int, list[nn.Module]] = defaultdict(list)
    for module in modules:
        for child in module._modules.values():
            if child is not None:
                holders[id(child)].append(module)
    called = {id(module): instance for instance, module in traced.items()}
    outermost = _naming(_outermost(traced.values(), holders), called)
    containers = [module for module in outermost if any(child is not None for child in module._modules.values())]
    prefixes = _prefixes(containers, called)
    names: dict[int, dict[str, None]] = defaultdict(dict)
    for module in outermost:
        prefix = prefixes.get(id(module), "")
        if prefix is not None:
            _add_names(module, prefix, names)
    known = {instance: tuple(of) for instance, module in traced.items() if (of := names.get(id(module)))}
    return dict(list(known.items())[:MOST_MODULES])


def _naming(outermost: list[nn.Module], called: Mapping[int, str]) -> list[nn.Module]:
    """Return those that were called, and others only if they hold a module that none of these holds."""
    chosen = [module for module in outermost if id(module) in called]
    held = {id(part) for module in chosen for part in module.modules()}

    def holds_others(module: nn.Module) -> bool:
        return any(id(part) in called and id(part) not in held for part in module.modules())

    return [*chosen, *(module for module in outermost if id(module) not in called and holds_others(module))]


def _outermost(traced: Iterable[nn.Module], holders: Mapping[int, list[nn.Module]]) -> list[nn.Module]:
    """Return the modules that nothing holds, of those that hold the traced ones."""
    found: dict[int, nn.Module] = {}
    seen: set[int] = set()
    stack = list(traced)
    while stack:
        module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        above = holders.get(id(module), [])
        stack.extend(above)
        if not above:
            found[id(module)] = module
    return list(found.values())


def _prefixes(containers: list[nn.Module], called: Mapping[int, str]) -> dict[int, str | None]:
    """Return what names begin with, by address of the outermost module: its class if there are several such modules.

    It is class and number of those of one class, and None where these are unknown: then modules have no name.
    """
    if len(containers) < 2:
        return {}
    inner = {id(module): _unwrapped(module) for module in containers}
    classes = [type(module).__name__ for module in inner.values()]
    shown = {
        address: name if classes.count(name) == 1 else called.get(id(inner[address]))
        for address, name in zip(inner, classes, strict=True)
    }
    return {address: None if name is None else f"{name}." for address, name in shown.items()}


def _unwrapped(module: nn.Module) -> nn.Module:
    while True:
        wrapped = [child for name, child in module._modules.items() if child is not None and _is_wrapped(module, name)]
        if not wrapped or wrapped[0] is module:
            return module
        module = wrapped[0]


def _is_wrapped(holder: nn.Module, attribute: str) -> bool:
    if attribute in _ALWAYS_WRAPPED:
        return True
    return attribute == "module" and any(base.__name__ in _WRAPPERS for base in type(holder).__mro__)


def _add_names(outermost: nn.Module, prefix: str, names: dict[int, dict[str, None]]) -> None:
    stack = [(outermost, "")]
    visits = 0
    while stack and visits < _MOST_VISITS:
        visits += 1
        module, name = stack.pop()
        known = names[id(module)]
        text = f"{prefix}{name}" if name else ""
        if text in known or len(known) >= MOST_NAMES or len(text) > LONGEST_NAME:
            continue
        known[text] = None
        for attribute, child in reversed(module._modules.items()):
            if child is not None:
                inner = name if _is_wrapped(module, attribute) else f"{name}.{attribute}".removeprefix(".")
                stack.append((child, inner))
