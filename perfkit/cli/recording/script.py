"""`perfkit run SCRIPT.py [OPTIONS] -- ARGUMENTS`: run a training script unchanged and record one trace per rank.

`perfkit run -m PACKAGE.MODULE [OPTIONS] -- ARGUMENTS` runs a module.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from perfkit.cli.recording.script_options import MODULE, make_configuration, split
from perfkit.errors import UsageError
from perfkit.record.lifecycle.local_launch import is_child
from perfkit.record.script.module_run import ModuleName
from perfkit.record.script.runner import launch_script, run_script

if TYPE_CHECKING:
    from perfkit.cli import Call


def with_hint(error: typer.TyperException, script: str) -> UsageError | None:
    """Return a clearer error if an option or argument is unknown, which may be one of the script's; else None."""
    message = error.format_message().rstrip(".")
    unknown = getattr(error, "option_name", None) if hasattr(error, "possibilities") else None
    if unknown is None and "unexpected extra argument" not in message:
        return None
    name = f"{MODULE} {script}" if isinstance(script, ModuleName) else script
    example = unknown or "ARGUMENTS"
    return UsageError(f"{message}; arguments of the script come after `--`: perfkit run {name} -- {example}")


def start(script: str, arguments: Sequence[str], call: "Call", given: dict[str, Any]) -> None:
    ranks = given.pop("ranks", None)
    config = make_configuration(script, given)
    if ranks is None or is_child():
        run_script(script, arguments, config, split(call.arguments)[0])
    else:
        launch_script(call.arguments, ranks)
