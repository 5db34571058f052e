"""`perfkit run SCRIPT.py [OPTIONS] -- ARGUMENTS`: run a training script unchanged and record one trace per rank.

`perfkit run -m PACKAGE.MODULE [OPTIONS] -- ARGUMENTS` runs a module.
"""

from collections.abc import Sequence
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from perfkit.cli.config_options import command, options, record
from perfkit.errors import UsageError
from perfkit.options.recording import refuse_contradiction
from perfkit.options.script import ScriptConfig
from perfkit.record.lifecycle.local_launch import is_child
from perfkit.record.script.module_run import ModuleName
from perfkit.record.script.runner import launch_script, run_script

if TYPE_CHECKING:
    from perfkit.cli import Call

_SUFFIX: Final = ".py"
_NO_NAMES: Final = ("main", "__main__")
_END_OF_OPTIONS: Final = "--"
_MODULE: Final = "-m"
_HELP: Final = """Run a training script as `python SCRIPT ARGUMENTS` would, and record one trace per rank.

`-m PACKAGE.MODULE` in place of SCRIPT runs a module as `python -m` would.

Arguments of the script come after `--`. A step lasts from the end of one optimizer.step() to the end of the next,
unless `--step-on` names something else. Step 0, `cold`, is everything up to the first such end, and the schedule counts
from there. The script runs unchanged, with its own exit code, output and signals. If mpiexec or srun started several
ranks, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set as by torchrun, unless one of them is already set.

\b
perfkit run train.py -n 2 -- --epochs 1
mpiexec -n 8 perfkit run train.py --schedule wait=20,warmup=1,active=10"""


def is_script(name: str) -> bool:
    """Return whether `name` is a script: a path that ends in .py, or any file that exists."""
    return name.endswith(_SUFFIX) or Path(name).is_file()


def module_in(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a `ModuleName` in place of a leading `-m NAME`.

    Raises:
        UsageError: The name is missing.
    """
    if arguments[:1] != [_MODULE]:
        return list(arguments)
    if len(arguments) < 2 or arguments[1].startswith("-"):
        raise UsageError("-m: the name of a module is missing: perfkit run -m package.module -- ARGUMENTS")
    return [ModuleName(arguments[1]), *arguments[2:]]


def with_hint(error: typer.TyperException, script: str) -> UsageError | None:
    """Return a clearer error if an option or argument is unknown, which may be one of the script's; else None."""
    message = error.format_message().rstrip(".")
    unknown = getattr(error, "option_name", None) if hasattr(error, "possibilities") else None
    if unknown is None and "unexpected extra argument" not in message:
        return None
    name = f"{_MODULE} {script}" if isinstance(script, ModuleName) else script
    example = unknown or "ARGUMENTS"
    return UsageError(f"{message}; arguments of the script come after `--`: perfkit run {name} -- {example}")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return perfkit's own options, and the arguments after the first `--`."""
    given = list(arguments)
    end = given.index(_END_OF_OPTIONS) if _END_OF_OPTIONS in given else len(given)
    return given[:end], given[end + 1 :]


def application(script: str, arguments: Sequence[str], ranks: Parameter) -> typer.Typer:
    """Return `perfkit run SCRIPT`.

    Raises:
        UsageError: There is no such script.
    """
    if not isinstance(script, ModuleName) and not Path(script).is_file():
        raise UsageError(f"{script}: no such file")
    return command(partial(_start, script, arguments), [ranks, *options(ScriptConfig, "Run", {})], _HELP)


def workload_of(script: str) -> str:
    """Return the name of a script; that of its folder if the script is called as every other one (`main.py`)."""
    path = Path(script).absolute()
    folder = path.parent.name.lstrip(".")
    name = folder if path.stem in _NO_NAMES and folder else path.stem
    return "".join(character if character.isprintable() else "_" for character in name)


def _start(script: str, arguments: Sequence[str], call: "Call", given: dict[str, Any]) -> None:
    ranks = given.pop("ranks", None)
    workload = script.workload if isinstance(script, ModuleName) else workload_of(script)
    refuse_contradiction(given)
    config = record(ScriptConfig, {"workload": workload, **given})
    if ranks is None or is_child():
        run_script(script, arguments, config, split(call.arguments)[0])
    else:
        launch_script(call.arguments, ranks)
