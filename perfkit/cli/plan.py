"""`perfkit plan`: predicts what fits, how long a step takes and what it costs."""

from typing import Any, Final, get_args

import typer

from perfkit.cli.config_options import command, options, parameter, record
from perfkit.cli.help_screen import Common
from perfkit.cli.output import output_parameters, take_outputs, write_files
from perfkit.options.plan import PlanOptions
from perfkit.records.plan import Plan
from perfkit.report import DEFAULT_TOP
from perfkit.tools.plan.layout import Checkpointing
from perfkit.tools.plan.precision import PRECISIONS

_OUTPUT: Final = "Output"
_HELP: Final = """Plan a training run: memory per rank, communication and step time of every parallel layout.

gpt, and models given by their size, are planned from formulas, instantly and without torch; --trace, and other
models, run a step of the real module on fake tensors. The command for the best layout is printed.

\b
perfkit plan gpt --preset gpt2-xl --ranks 64 --cluster polaris
perfkit plan llama-7b -n 8 --device h100
perfkit plan my_model.py:build --input 4,512:int64 -n 8 --device h100
"""
_CHOICES: Final = {"precision": tuple(PRECISIONS), "checkpoint": get_args(Checkpointing)}
"""In this order; that of a record's types is the alphabet's."""
_TOP: Final = typer.Option(
    min=1, rich_help_panel=_OUTPUT, help=f"Layouts with tp, pp, cp or ep to show.  [default: {DEFAULT_TOP}]"
)


def _start(_call: Any, given: dict[str, Any]) -> None:
    top = given.pop("top", DEFAULT_TOP)
    files = take_outputs(Plan, given)
    chosen = record(PlanOptions, given)
    from perfkit.tools.plan.command import plan_model  # the workloads: not for `--help`

    write_files(plan_model(chosen), files, top)


app = command(
    _start,
    [
        parameter(
            "model",
            str,
            typer.Argument(metavar="[MODEL]", help="gpt, a preset, or FILE.py:FUNCTION.", show_default=False),
        ),
        *(one for one in options(PlanOptions, _OUTPUT, _CHOICES) if one.name != "model"),
        *output_parameters(Plan, _OUTPUT, Common(_OUTPUT)),
        parameter("top", int, _TOP),
    ],
    _HELP,
)
