"""Record the samples of a clone again: two small runs and a series in traces/, reports and pictures of them.

Run it from the root of the project with `python -m tests.make_samples`, on a quiet machine, and commit the files.
`picture` as argument draws the pictures only.
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
from contextlib import chdir
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

RUNS = {
    "sample-memory": ["--source", "memory", "--read", "per-sample"],
    "sample-hdf5": ["--source", "hdf5", "--read", "per-sample"],
}
SERIES = Path("traces/series")
SOURCES = ("memory", "hdf5", "safetensors")
SIZES = (1, 2, 4)
GLOBAL_BATCH = 256
MODEL = ["--preset", "tiny", "--layers", "1", "--block", "32", "--no-bias", "--clip-norm", "0", "--samples", "4096"]
RECORDED = ["--steps", "30", "--schedule", "wait=1,warmup=1,active=2", "--no-sampling", "--data-dir", "traces/.data"]
WIDTH = 82
DEMO = [
    "gpt",
    "-n",
    "2",
    "--source",
    "hdf5",
    "--read",
    "per-sample",
    "--steps",
    "16",
    "--schedule",
    "warmup=1,active=6",
]
DELAYS = ["rank=1,phase=forward,delay=60ms", "phase=data_loading,delay=40ms"]
TRAIN = ["transformer", "--preset", "tiny", "-n", "2", "--threads", "1", "--steps", "60"]

# Unlike rich's own template, this one fetches no font from the network.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def perfkit(*arguments: str) -> str:
    """Run a perfkit command and return its output."""
    command = [sys.executable, "-m", "perfkit", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Record, analyse, draw."""
    if sys.argv[1:] != ["picture"]:
        record_samples()
        record_series()
    pictures = [f"docs/pictures/{name}.svg" for name in ("scaling", "lost")]
    perfkit("analyze", str(SERIES), *(option for file in pictures for option in ("-o", file)))
    picture = Path("reports/sample.svg").absolute()
    with TemporaryDirectory() as folder, chdir(folder):
        delays = [option for delay in DELAYS for option in ("--inject", delay)]
        perfkit("run", *DEMO, *delays, "--name", "demo")
        draw("traces/demo", picture, "make demo")


def record_series() -> None:
    """Record each source of input on 1, 2 and 4 ranks, with as many samples per step over all of them."""
    shutil.rmtree(SERIES, ignore_errors=True)
    for size, source in product(SIZES, SOURCES):
        options = ["-n", str(size), "--batch-size", str(GLOBAL_BATCH // size), "--source", source]
        run = [
            "--threads",
            "1",
            "--read",
            "per-sample",
            "--trace-dir",
            str(SERIES),
            "--name",
            f"{source}-{size}",
            "--no-report",
        ]
        perfkit("run", "gpt", *MODEL, *RECORDED, *options, *run)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for trace in SERIES.glob("*/*.json.gz"):
        events = gzip.decompress(trace.read_bytes()).decode().replace(boot, str(UUID(int=0)))
        trace.write_bytes(gzip.compress(events.encode(), mtime=0))


def record_samples() -> None:
    """Record the runs of a clone, and write the report about them."""
    for name, options in RUNS.items():
        shutil.rmtree(Path("traces", name), ignore_errors=True)
        perfkit("run", *TRAIN, "--trace-dir", "traces", "--name", name, *options)
    folders = [f"traces/{name}" for name in RUNS]
    perfkit("analyze", *folders, "-o", "reports/sample.md")


def draw(folder: str, target: Path, title: str) -> None:
    """Draw the answer about a run as in a terminal."""
    from perfkit.pipeline.analyze import analyze
    from perfkit.records.report import Report
    from perfkit.report import reporter

    colours = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    shown = io.StringIO()
    shown.isatty = lambda: True  # type: ignore[method-assign]
    os.environ["COLORTERM"] = "truecolor"
    reporter(Report, "summary").write(analyze(folder), shown, top=5)
    colours.print(Text.from_ansi(shown.getvalue()))
    target.write_text(colours.export_svg(title=title, theme=MONOKAI, code_format=SVG))


if __name__ == "__main__":
    main()
