"""Options of the commands that read traces, described once."""

from pathlib import Path
from typing import Annotated

import typer

StepMarker = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Annotations that mark steps, instead of `ProfilerStep#N`.")
]
KernelRules = Annotated[
    Path | None, typer.Option(metavar="FILE", help="TOML file with rules for the names of device kernels.")
]
MaxBytes = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="<int>",
        help="Maximum decompressed size of a trace; also disables the check for decompression bombs.  "
        "[default: 64 GiB, with this check]",
    ),
]
RankList = Annotated[
    str | None, typer.Option(metavar="LIST", help="Ranks to include, such as 0,7 or 0-3 (default: all).")
]
