"""Record scripts with a known slow line and again without it, and judge the first screen: the line, and its saving.

Usage: python -m tests.benchmarks.bench_answers [--ranks 1 2] [--only item lock] [--repeats 3] [--load N]
           [--screens FOLDER]

`perfkit run tests/benchmarks/answers/NAME.py` at default options, and with `-- --mended`, in turn. A row per script:

named       of how many repeats the first screen, at 80 columns, names the slow function and a line of it
delay       what it takes of the mean step: that of the script less that of its twin
promised    what the recommendation about its row says it saves, mean over repeats
measured    how much shorter the mean step of the twin is, with the interval of the difference (95 %)
ratio       promised / measured; in brackets if it is off by more than 20 %

With --load N, N processes compute beside the runs: then it is counted how often the Trust line says so, and how often a
sentence blames storage, the network or a rank.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import perfkit
from perfkit.base.statistics.bootstrap import shift_interval
from perfkit.records.report import Insight, Report
from perfkit.report.renderers import answer
from tests.support.processes.script_pairs import run_forked

SCRIPTS: Final = Path(__file__).parent / "answers"
SLOW: Final = {
    "augmentation": "colour_jitter",
    "tokenizer": "tokenize",
    "collate": "pad_batch",
    "logging_": "log_gradient",
    "hook": "watch_activations",
    "scheduler": "Warmup.get_lr",
    "lock": "keep_loss",
    "garbage": "clean_up",
    "small_files": "Files.read_rows",
    "worker": "fetch_remote",
    "item": "check_weights",
    "print_": "show_gradient",
}
"""The function with the slow line, by script."""
COLUMNS: Final = 80
LINES: Final = 20
_CLOSE: Final = 0.2
_BLAMED: Final = re.compile(r"storage|network|\brank \d+ (late|delays)|\branks .* (late|delay)", re.IGNORECASE)


class Recorded(NamedTuple):
    """A run and what its answer is."""

    screen: list[str]
    step_ns: float
    promised_ns: float | None
    """By the recommendation about the row that the slow function is on; None without one."""
    is_named: bool


class Row(NamedTuple):
    """A script on some ranks: the runs with its slow line, and those of its twin."""

    name: str
    ranks: int
    slow: list[Recorded]
    mended: list[Recorded]

    @property
    def delay_ns(self) -> float:
        return fmean(one.step_ns for one in self.slow) - fmean(one.step_ns for one in self.mended)

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        return shift_interval([one.step_ns for one in self.mended], [one.step_ns for one in self.slow])

    @property
    def promised_ns(self) -> float | None:
        known = [one.promised_ns for one in self.slow if one.promised_ns is not None]
        return fmean(known) if len(known) == len(self.slow) else None

    @property
    def is_close(self) -> bool:
        promised_ns = self.promised_ns
        return promised_ns is not None and abs(promised_ns - self.delay_ns) <= _CLOSE * self.delay_ns

    @property
    def named(self) -> int:
        return sum(one.is_named for one in self.slow)


def lines_of(script: str) -> range:
    """Return the lines of a script's slow function."""
    *_, function = SLOW[script].split(".")
    tree = ast.parse((SCRIPTS / f"{script}.py").read_text(encoding="utf-8"))
    found = next(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == function)
    return range(found.lineno, (found.end_lineno or found.lineno) + 1)


def screen_of(report: Report) -> list[str]:
    """Return the first screen."""
    stream = io.StringIO()
    answer.write(report, stream, top=10, width=COLUMNS)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def is_named(script: str, screen: Sequence[str]) -> bool:
    """Return whether the first screen has the slow function with one of its lines."""
    found = re.findall(rf"`{re.escape(SLOW[script])}`,\s+{script}\.py:(\d+)", "\n".join(screen[:LINES]))
    return any(int(line) in lines_of(script) for line in found)


def promised_ns(script: str, report: Report) -> float | None:
    """Return what the first recommendation saves whose row the slow function is on; None if none says."""
    (run,) = report.runs
    rows = {
        row.cause for row in (run.ledger.rows if run.ledger else []) if row.code and row.code.function == SLOW[script]
    }
    about: list[Insight] = [one for one in report.insights if one.row in rows]
    return next((one.potential_saving_ns for one in about if not one.only_finds_out), None)


def recorded(script: str, folder: Path) -> Recorded:
    """Return what is told of a run."""
    report = perfkit.analyze(folder / "traces" / "run")
    (run,) = report.runs
    if run.step_time is None:
        raise SystemExit(f"{script}: no steps in {folder}")
    screen = screen_of(report)
    return Recorded(screen, run.step_time.mean_ns, promised_ns(script, report), is_named(script, screen))


def measure(scripts: Sequence[str], ranks: int, repeats: int, twins: Sequence[str]) -> list[Row]:
    """Record and analyse scripts, `slow` and `mended` in turn."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        places = [(name, twin, k) for k in range(repeats) for name in scripts for twin in twins]
        runs = []
        for name, twin, k in places:
            options = ["--", "--mended"] if twin == "mended" else []
            command = ["run", str(SCRIPTS / f"{name}.py"), "--name", "run", "--no-report", *options]
            runs.append((command, root / f"{name}-{twin}-{k}"))
        for (name, twin, _), ended in zip(places, run_forked(runs, ranks=ranks), strict=True):
            if ended.code:
                raise SystemExit(f"{name} ({twin}): {ended.errors}")
        of = {place: recorded(place[0], folder) for place, (_, folder) in zip(places, runs, strict=True)}
    each = {twin: {name: [of[name, twin, k] for k in range(repeats)] for name in scripts} for twin in twins}
    return [Row(name, ranks, each["slow"][name], each.get("mended", {}).get(name, [])) for name in scripts]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the machine busy meanwhile."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def says_busy(screen: Sequence[str]) -> bool:
    return any(line.startswith("Trust: other processes used ") for line in screen)


def blames(screen: Sequence[str]) -> list[str]:
    """Return the lines that blame storage, the network or a rank."""
    return [line for line in screen if _BLAMED.search(line)]


_HEAD: Final = (
    f"{'script':<14}{'ranks':>6}{'named':>8}{'delay':>7}{'promised':>10}{'measured':>10}{'interval':>17}{'ratio':>8}"
)


def shown(row: Row) -> str:
    """Return a row of the table."""
    share = row.delay_ns / fmean(one.step_ns for one in row.slow)
    bounds = "{:.1f} to {:.1f}".format(*(ns / 1e6 for ns in row.interval_ns)) if row.interval_ns else "-"
    told_ns = row.promised_ns
    ratio = "-" if told_ns is None else f"{told_ns / row.delay_ns:.2f}"
    told = "-" if told_ns is None else f"{told_ns / 1e6:.1f} ms"
    named = f"{row.named}/{len(row.slow)}"
    figures = f"{share:>7.0%}{told:>10}{row.delay_ns / 1e6:>7.1f} ms{bounds:>17}"
    return f"{row.name:<14}{row.ranks:>6}{named:>8}{figures}{ratio if row.is_close else f'({ratio})':>8}"


def shown_busy(row: Row) -> str:
    """Return a row of the table of busy machines."""
    said = sum(says_busy(one.screen) for one in row.slow)
    blamed = sum(bool(blames(one.screen)) for one in row.slow)
    counts = "".join(f"{f'{count}/{len(row.slow)}':>8}" for count in (row.named, said, blamed))
    return f"{row.name:<14}{row.ranks:>6}{counts}"


def counted(rows: Sequence[Row], ranks: int, is_busy: bool) -> str:
    """Return of how many scripts every screen is right."""
    named = sum(row.named == len(row.slow) for row in rows)
    if is_busy:
        said = sum(all(says_busy(one.screen) for one in row.slow) for row in rows)
        fair = sum(not any(blames(one.screen) for one in row.slow) for row in rows)
        return f"ranks {ranks}: of {len(rows)} scripts {named} named, {said} said to be busy, {fair} without blame"
    return f"ranks {ranks}: of {len(rows)} scripts {named} named, {sum(row.is_close for row in rows)} within 20 %"


def write_screens(rows: Sequence[Row], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        text = "\n\n".join("\n".join(one.screen) for one in (*row.slow, *row.mended[:1]))
        (folder / f"{row.name}-{row.ranks}.txt").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Record, analyse and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=SLOW, default=list(SLOW))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--screens", type=Path, help="write all first screens into this folder")
    given = parser.parse_args()
    twins = ["slow"] if given.load else ["slow", "mended"]
    with busy(given.load):
        rows = [row for ranks in given.ranks for row in measure(given.only, ranks, given.repeats, twins)]
    if given.screens:
        write_screens(rows, given.screens)
    print(f"{'script':<14}{'ranks':>6}{'named':>8}{'trust':>8}{'blames':>8}" if given.load else _HEAD)
    for row in rows:
        print(shown_busy(row) if given.load else shown(row))
    for ranks in given.ranks:
        print(counted([row for row in rows if row.ranks == ranks], ranks, bool(given.load)))
    screens = [one.screen for row in rows for one in (*row.slow, *row.mended)]
    print(f"longest screen: {max(map(len, screens))} lines")


if __name__ == "__main__":
    main()
