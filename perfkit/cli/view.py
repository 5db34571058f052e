"""`perfkit view` and `perfkit serve`: a trace in the Perfetto UI, and a folder of runs, in the browser."""

from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from perfkit.cli.typer_app import App, StepMarker, announce, check_folders, print_line
from perfkit.errors import TraceError, UsageError

app = App()
serve_app = App()

Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")]
_PUBLIC = "https://ui.perfetto.dev"


@app.command()
def view(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A trace, a run folder, or a merged timeline.")],
    rank: Annotated[
        int | None,
        typer.Option(
            min=0, help="Rank to show, if PATH is a folder [default: the lowest]; to expand, in a merged timeline."
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Step to show first; numbered as by `perfkit analyze`, not for merged timelines."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time to show first: an instant (12.5ms) or span (12.5ms-13ms) since the start of --step, otherwise "
            "of the first step.",
        ),
    ] = None,
    step_marker: StepMarker = None,
    browser: Browser = True,
    offline: Annotated[
        bool, typer.Option("--offline", help="Also serve the UI, without internet; needs the extra `ui`.")
    ] = False,
    ui: Annotated[str, typer.Option(metavar="URL", help="Address of the Perfetto UI.")] = _PUBLIC,
) -> None:
    """Open a trace in the Perfetto UI.

    The trace is sent from this machine to your browser only; the UI reads it there.

    \b
    perfkit view traces/my-run --rank 3
    perfkit view traces/my-run --rank 3 --step 12   opens at this step
    perfkit view traces/my-run --rank 3 --step 12 --at 40ms-42ms   at these 2 ms
    perfkit view trace.json.gz --no-browser   on a remote machine
    perfkit view traces/my-run --offline      with the UI served from this machine
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    if offline and ui != _PUBLIC:
        raise UsageError("--offline serves its own UI: leave --ui out")
    if step_marker is not None and step is None and at is None:
        raise UsageError("--step-marker defines the steps for --step and --at: give one of these, too")
    from perfkit.storage.discovery import choose_trace, refuse_pipe
    from perfkit.storage.filenames import PERFETTO_SUFFIXES
    from perfkit.tools.serve.trace import TraceServer, bundled_ui, origin_of
    from perfkit.trace.nsys.paths import is_recording

    origin_of(ui)
    refuse_pipe(path, "a browser")
    is_merged = path.is_file() and path.name.lower().endswith(PERFETTO_SUFFIXES)
    trace = choose_trace(path, None if is_merged else rank)
    files = bundled_ui() if offline else None
    with ExitStack() as stack:
        window = None
        if is_recording(trace):
            shown = _merged(trace, Path(stack.enter_context(TemporaryDirectory())), step, at, step_marker)
        else:
            _refuse_others(trace)
            shown = trace
            window = None if step is None and at is None else _window(trace, step, at, step_marker)
        expanded = rank if is_merged else None
        server = stack.enter_context(
            TraceServer(shown, ui=None if offline else ui, ui_files=files, window=window, expanded=expanded)
        )
        until = "Serving until Ctrl-C" if offline else "Waiting for the browser to fetch the trace; Ctrl-C ends"
        announce(str(trace), server.link, server.server_port, browser=browser, until=until)
        if offline:
            # The UI loads parts of itself on demand, for as long as it is used.
            with suppress(KeyboardInterrupt):
                server.serve_forever()
            return
        server.serve_until_fetched()
    print_line(f"{trace.name}: loaded in the browser")


def _refuse_others(trace: Path) -> None:
    """Raise TraceError for a file that shows by its first bytes that it is no timeline: the UI would only fail."""
    from perfkit.trace.file_kind import describe_file

    if (kind := describe_file(trace)) is not None:
        raise TraceError(f"{trace}: is {kind}, not a trace or a timeline")


def _merged(trace: Path, folder: Path, step: str | None, at: str | None, step_marker: str | None) -> Path:
    """Return a timeline of a recording of nsys, or of one step of it: Perfetto does not read its format."""
    if at is not None:
        raise UsageError(f"--at shows a part of a trace of torch.profiler, and {trace} is a recording of nsys")
    from perfkit.tools.merge.merge import merge

    target = folder / f"{trace.name}.pftrace"
    merge(trace, target, steps=step, step_marker=step_marker)
    return target


def _window(trace: Path, step: str | None, at: str | None, step_marker: str | None) -> tuple[int, int]:
    from perfkit.base.parsing import parse_step
    from perfkit.engine.trace_summary import check_markers
    from perfkit.tools.serve.step_window import parse_time_span, step_window

    check_markers(step_marker)
    number = None if step is None else parse_step(step, "--step")
    return step_window(trace, number, step_marker, None if at is None else parse_time_span(at))


@serve_app.command()
def serve(
    paths: Annotated[list[Path], typer.Argument(metavar="FOLDER", hidden=True)],
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, show_default=False, help="Port on this machine [default: any free one]."),
    ] = 0,
    browser: Browser = True,
    offline: Annotated[
        bool, typer.Option("--offline", help="Also serve the Perfetto UI, without internet (needs the extra `ui`).")
    ] = False,
) -> None:
    """Show runs in the browser: a live list, reports, comparisons and timelines.

    FOLDER has runs or traces.

    Only you can open it, and only on this machine: the printed address contains a secret.

    \b
    perfkit serve traces/
    perfkit serve traces/ --no-browser --port 8000   on a remote machine
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    check_folders(paths)
    from perfkit.tools.serve.site import RunServer

    with RunServer(paths, port=port, offline=offline) as server, suppress(KeyboardInterrupt):
        announce(", ".join(map(str, paths)), server.link, server.server_port, browser=browser)
        server.serve_forever()
