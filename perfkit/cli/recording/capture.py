"""`perfkit capture`: record coming steps of a run that is in progress."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.base.formatting import plural, shell_word, size
from perfkit.base.parsing import Ranges, parse_duration
from perfkit.base.polling import SHARED_POLL_S
from perfkit.base.standard_streams import write_stderr
from perfkit.cli.typer_app import App, print_line
from perfkit.errors import CaptureBusyError, CaptureError
from perfkit.records.hang import MOST_RANKS

if TYPE_CHECKING:
    from perfkit.record.on_demand.mailbox import Plan, Request, Slot
    from perfkit.records.manifest import RunManifest

app = App()


@app.command()
def capture(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a run that is in progress.")],
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Steps to record.")] = 3,
    ranks: Annotated[str | None, typer.Option(metavar="R,R-R", help="Record only these ranks [default: all].")] = None,
    timeout: Annotated[
        str,
        typer.Option(help="Give up after this long without progress, of another capture or of this one."),
    ] = "2m",
) -> None:
    """Record the next steps of a run that is in progress, the same on all ranks, without restarting it.

    Works for runs of `perfkit run` and `perfkit.profile()`, under any launcher, from any host that shares the folder.
    The traces are written to FOLDER/capture-1 (2, 3, ...). Ctrl-C withdraws the request. If another capture is in
    progress, this one waits for it.

    Exit code: 0 if all ranks recorded all steps; 1 if some did not, if the run has ended, or if it is recording the
    steps of its schedule.

    \b
    perfkit capture traces/my-run
    perfkit capture traces/my-run --steps 5 --ranks 0,7
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    silence_s = parse_duration(timeout, "--timeout") / 1e9
    from perfkit.record.on_demand.mailbox import Request
    from perfkit.record.on_demand.requester import agree, await_end, withdraw
    from perfkit.storage.run_folder import read_manifest

    chosen = _chosen(ranks, _world_size(folder, read_manifest(folder)))
    slot = _ask_in_turn(folder, Request(steps=steps, ranks=None if ranks is None else chosen), silence_s)
    try:
        plan, in_s = agree(slot, chosen)
        _announce(plan, chosen, in_s)
        target, manifest = await_end(slot, plan, silence_s)
    except KeyboardInterrupt:
        withdraw(slot)
        raise
    _report(target, manifest, chosen)


def _world_size(folder: Path, manifest: "RunManifest") -> int:
    """Return the number of ranks.

    Raises:
        CaptureError: There are more than any run has.
    """
    size = manifest.world.world_size
    if not 0 < size <= MOST_RANKS:
        raise CaptureError(f"{folder}: run.json names {size:,} ranks, not 1 to {MOST_RANKS:,}")
    return size


def _chosen(text: str | None, world_size: int) -> list[int]:
    everyone = list(range(world_size))
    if text is None:
        return everyone
    wanted = Ranges("--ranks", text)
    wanted.check(set(everyone), "rank")
    return [rank for rank in everyone if rank in wanted]


def _ask_in_turn(folder: Path, request: "Request", patience_s: float) -> "Slot":
    """Ask for a capture, after the one that is in progress."""
    from perfkit.record.on_demand.requester import ask

    waited_for, since = "", time.monotonic()
    while True:
        try:
            return ask(folder, request)
        except CaptureBusyError as error:
            if str(error) != waited_for:
                waited_for, since = str(error), time.monotonic()
                write_stderr(f"perfkit: {error}: waiting for it")
            if time.monotonic() - since > patience_s:
                raise
            time.sleep(SHARED_POLL_S)


def _announce(plan: "Plan", chosen: list[int], in_s: float | None) -> None:
    last = plan.first_step + plan.steps - 1
    when = "" if in_s is None else f", in about {max(in_s, 1):.0f} s"
    silent = sorted(set(chosen) - set(plan.ranks))
    without = f"; no answer from rank{'s'[: len(silent) > 1]} {', '.join(map(str, silent[:8]))}" if silent else ""
    write_stderr(
        f"perfkit: recording steps {plan.first_step} to {last} of {plural(len(plan.ranks), 'rank')}{when}{without}"
    )


def _report(target: Path, manifest: "RunManifest", chosen: list[int]) -> None:
    """Print what there is and what to type next.

    Raises:
        CaptureError: Some ranks have not recorded all steps.
    """
    record = manifest.capture
    if record is None:
        raise CaptureError(f"{target}: its manifest does not describe a capture")
    traces = [file for file in manifest.files if file.kind == "trace"]
    written = size(sum(file.bytes for file in traces))
    last = record.first_step + record.steps - 1
    print_line(
        f"{target}: steps {record.first_step} to {last}, {plural(len(traces), 'rank')}, {written}; "
        f"to see where the time went: perfkit analyze {shell_word(target)}"
    )
    silent = {rank: "did not answer" for rank in chosen if rank not in record.ranks}
    missing = {**record.problems, **silent}
    if missing:
        rank, why = next(iter(missing.items()))
        others = f" (and {plural(len(missing) - 1, 'more rank')})" if len(missing) > 1 else ""
        raise CaptureError(f"{target} is incomplete: rank {rank}: {why}{others}")
