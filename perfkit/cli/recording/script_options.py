"""The options of `perfkit run SCRIPT`, and the configuration that they describe.

Does not import torch: `perfkit sweep` needs only the options.
"""

from collections.abc import Callable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any, Final

import msgspec
import typer
from typer.main import get_command

from perfkit.cli.config_options import command, options, record
from perfkit.errors import UsageError
from perfkit.options.recording import refuse_contradiction
from perfkit.options.script import ScriptConfig
from perfkit.record.script.module_run import ModuleName

Start = Callable[[Any, dict[str, Any]], None]

_SUFFIX: Final = ".py"
_NO_NAMES: Final = ("main", "__main__")
_END_OF_OPTIONS: Final = "--"
MODULE: Final = "-m"
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
    if arguments[:1] != [MODULE]:
        return list(arguments)
    if len(arguments) < 2 or arguments[1].startswith("-"):
        raise UsageError("-m: the name of a module is missing: perfkit run -m package.module -- ARGUMENTS")
    return [ModuleName(arguments[1]), *arguments[2:]]


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return perfkit's own options, and the arguments after the first `--`."""
    given = list(arguments)
    end = given.index(_END_OF_OPTIONS) if _END_OF_OPTIONS in given else len(given)
    return given[:end], given[end + 1 :]


def application(script: str, start: Start, more: Sequence[Parameter] = ()) -> typer.Typer:
    """Return the command `perfkit run SCRIPT`.

    Args:
        script: Its path, or a `ModuleName`.
        start: Called with the context's `obj` and the options that were given.
        more: Further options, which are not part of the configuration.

    Raises:
        UsageError: There is no such script.
    """
    if not isinstance(script, ModuleName) and not Path(script).is_file():
        raise UsageError(f"{script}: no such file")
    return command(start, [*more, *options(ScriptConfig, "Run", {})], _HELP)


def workload_of(script: str) -> str:
    """Return the name of a script; that of its folder if the script is called as every other one (`main.py`)."""
    path = Path(script).absolute()
    folder = path.parent.name.lstrip(".")
    name = folder if path.stem in _NO_NAMES and folder else path.stem
    return "".join(character if character.isprintable() else "_" for character in name)


def make_configuration(script: str, given: dict[str, Any]) -> ScriptConfig:
    """Return the options of a script that were given, and the defaults of the others.

    Raises:
        UsageError: An option has an invalid value.
    """
    workload = script.workload if isinstance(script, ModuleName) else workload_of(script)
    refuse_contradiction(given)
    return record(ScriptConfig, {"workload": workload, **given})


def parse_configuration(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of `perfkit run ARGUMENTS`, of a script or module, as its manifest will have it.

    Raises:
        UsageError: There is no such script, or an option has an invalid value.
        typer.TyperException: There is no such option, or a value has the wrong type.
    """
    script, *rest = module_in(arguments)
    own, given = split(rest)
    values: dict[str, Any] = {}
    parser = get_command(application(script, lambda _, parsed: values.update(parsed)))
    with parser.make_context(f"perfkit run {script}", own) as context:
        parser.invoke(context)
    named = f"{MODULE} {script}" if isinstance(script, ModuleName) else script
    config = msgspec.json.decode(msgspec.json.encode(make_configuration(script, values)))
    return {"script": named, "arguments": given, **config}
