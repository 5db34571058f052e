"""`perfkit doctor`: what this machine has, and what to do about what is missing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from perfkit.base.formatting import plural
from perfkit.cli.typer_app import App, print_line

if TYPE_CHECKING:
    from perfkit.records.tools import Check, DoctorReport

app = App()

_EXIT_PROBLEM: Final = 1


@app.command()
def doctor(
    trace_dir: Annotated[
        Path, typer.Option("--trace-dir", metavar="FOLDER", help="Where traces would be written.")
    ] = Path("traces"),
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for a bug report (`perfkit schema doctor`).")
    ] = False,
) -> None:
    """Check what perfkit can use on this machine, and how to get what is missing.

    Torch, backends and the profiler are tested in separate processes. Under a launcher every rank checks itself:
    rank 0 prints everything, the others only their problems. Exit code 1: a problem was found; missing optional
    packages are not problems.

    \b
    perfkit doctor
    perfkit doctor --json > doctor.json       for a bug report
    mpiexec -n 4 -ppn 4 perfkit doctor        what each rank finds
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    from perfkit.tools.doctor.checks import diagnose

    diagnosis = diagnose(trace_dir)
    if json:
        print_line(msgspec.json.encode(diagnosis).decode())
    else:
        _print(diagnosis)
    if any(check.state == "problem" for check in diagnosis.checks):
        raise typer.Exit(_EXIT_PROBLEM)


def _print(diagnosis: "DoctorReport") -> None:
    problems = [check for check in diagnosis.checks if check.state == "problem"]
    if diagnosis.rank:
        for check in problems:
            print_line(f"rank {diagnosis.rank} on {diagnosis.host}: {_line(check)}")
        return
    ranks = f", rank 0 of {diagnosis.world_size}" if diagnosis.world_size > 1 else ""
    print_line(f"perfkit {diagnosis.perfkit_version} on {diagnosis.host}{ranks}")
    for check in diagnosis.checks:
        print_line(f"  {check.state:<8} {_line(check)}")
        if check.remedy:
            print_line(f"{'':11}→ {check.remedy}")
    print_line(plural(len(problems), "problem") if problems else "Nothing is wrong.")


def _line(check: "Check") -> str:
    return f"{check.name}: {check.found}"
