"""The terminal report: widths, omissions, and escaping of names."""

import io
import re
import time

import pytest
from rich.cells import cell_len
from rich.console import Console

from perfkit.records.common import Finding
from perfkit.report.renderers import answer, console
from perfkit.report.renderers.text import MOST_CHARACTERS, limited
from perfkit.tables import kernel_names
from perfkit.tables.kernel_names import fold, fold_name, shorten, widest_part
from perfkit.tables.specification import Cell, Column, Kind, Table
from tests.support.reports.report_builders import (
    MS,
    make_collective,
    make_foreign_run,
    make_operator,
    make_rank,
    make_report,
    make_run,
    make_step,
)
from tests.unit.report.test_golden import REPORTS, drawn

HUGE = 123_456_789 * MS
LENGTH = 200_000
REPEATED = {"one word": "n", "words": "word ", "wide": "字", "marks": "\u0301", "marked words": "a " + "\u0301" * 999}
LONG_TEXTS = [pytest.param((part * LENGTH)[:LENGTH], id=name) for name, part in REPEATED.items()]


@pytest.mark.parametrize("width", [80, 100, 132, 200])
@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert max(cell_len(line) for line in drawn(REPORTS[name], width).splitlines()) <= width


def test_no_number_is_cut_at_80_columns_however_long_the_names() -> None:
    long = "n" * 300
    rank = make_rank(
        99_999,
        [make_step(123_456, compute=HUGE), make_step(123_457)],
        operators=[make_operator(long, count=1_234_567, total_ns=987 * MS)],
        collectives=[
            make_collective(
                operator=long, group=long, dtype=long, count=7_654_321, total_ns=876 * MS, exposed_ns=765 * MS
            )
        ],
    )
    run = make_run(long, ranks=[rank], source=long, workload=long)
    text = drawn(make_report(run, run), 80)
    for number in ("99999", "123456", "1,234,567", "987 ms", "7,654,321", "876 ms", "765 ms", "123457 s"):
        assert number in text, number


def test_many_ranks_are_shown_by_their_extremes() -> None:
    ranks = [make_rank(r, [make_step(5, compute=(60 + r) * MS)]) for r in range(64)]
    ranks[17] = make_rank(17, [make_step(5, overhead=500 * MS)])
    text = drawn(make_report(make_run(ranks=ranks, world_size=64)), 80)
    table = text[text.index("Ranks (") : text.index("Data loading")]
    shown = [int(m) for m in re.findall(r"^ *(\d+) +1 ", table, flags=re.M)]
    assert {0, 17, 63} <= set(shown)
    assert len(shown) <= 13
    assert f"{64 - len(shown)} more ranks" in table


def test_a_thousand_steps_do_not_flood() -> None:
    steps = [make_step(n, compute=(60 + n % 7) * MS) for n in range(1000)]
    text = drawn(make_report(make_run(ranks=[make_rank(0, steps)], world_size=1)), 80, top=5)
    assert "423 more above the median" in text
    assert len(text.splitlines()) < 120


def test_many_runs_leave_their_tables_out() -> None:
    text = drawn(make_report(*(make_run(f"run{i}") for i in range(20))), 80)
    assert "Top operators" not in text
    assert "analyze fewer runs to see them" in " ".join(text.split())
    assert all(f"run{i} ──" in text for i in range(20))


def test_shares_of_a_rank_add_up_to_100() -> None:
    steps = [make_step(1, compute=1, communication=1, memcpy=1, data_loading=0, overhead=0)]
    text = drawn(make_report(make_run(ranks=[make_rank(0, steps)])), 80)
    assert "33.4 %" in text
    assert text.count("33.3 %") >= 2


def test_names_are_text() -> None:
    names = ["\x1b[31mred\x1b]0;title\x07", "[bold]markup[/bold]", "a\nb\rc", "\u202eevil\u200b", "\ud800", ":smile:"]
    rank = make_rank(0, operators=[make_operator(n) for n in names])
    text = drawn(make_report(make_run("[red]\x1b[2J", ranks=[rank])), 120)
    assert "\x1b" not in text
    for shown in (r"\x1b[31mred\x1b]0;title\x07", "[bold]markup[/bold]", r"a\nb\rc", r"\u202eevil\u200b", ":smile:"):
        assert shown in text, shown
    assert r"\ud800" in text
    assert r"[red]\x1b[2J" in text


def test_no_colour_off_a_terminal() -> None:
    assert "\x1b" not in drawn(make_report(), 80)


@pytest.mark.parametrize(("no_color", "coloured"), [(False, True), (True, False)])
def test_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch, no_color: bool, coloured: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    console.write(make_report(), stream, top=10)
    assert bool(re.search(r"\x1b\[[\d;]*3[0-9]", stream.getvalue())) is coloured


def test_equal_findings_are_merged_and_sorted_by_severity() -> None:
    same = [Finding(code="low", severity="info", message="same", rank=r, file=f"f{r}") for r in range(64)]
    other = [Finding(code="odd", severity="warning", message=f"message {i}") for i in range(9)]
    text = drawn(make_report(make_run(findings=[make_run().findings[1], *other, *same])), 120)
    assert text.count("same") == 1
    assert "low: same (ranks 0-63, f0, f1, f2, f3, 60 more like this)" in text
    assert "message 4" in text
    assert "message 5" not in text
    assert "odd: 4 more like this" in text
    assert text.index("dropped_events:") < text.index("odd:") < text.index("low:")


def test_injected_faults_are_reported() -> None:
    assert "deliberate: 60.0 ms in backward on rank 1" in drawn(make_report(), 80)


def test_a_run_without_steps_is_shown() -> None:
    empty = make_rank(0, [], operators=[], collectives=[])
    assert "none" in drawn(make_report(make_run(ranks=[empty]), make_foreign_run(ranks=[])), 80)


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("short", 10, "short"),
        ("gpt-hdf5-2ranks-20261120T234305Z", 20, "gpt-hdf5-2ranks-\n20261120T234305Z"),
        ("rank 1, step 6", 8, "rank 1,\nstep 6"),
        ("abcdefghij", 4, "abcd\nefgh\nij"),
        ("字字字", 4, "字字\n字"),
        ("字字", 1, "字\n字"),
        ("ab\u0301cd", 2, "ab\u0301\ncd"),
        ("ab   ", 2, "ab\n"),
        ("", 4, ""),
    ],
)
def test_fold(text: str, width: int, expected: str) -> None:
    assert fold(text, width) == expected


@pytest.mark.parametrize("width", [1, 80])
@pytest.mark.parametrize("text", LONG_TEXTS)
def test_fold_measures_each_character_of_a_long_text_a_few_times_at_most(
    text: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = 0

    def counted(part: str) -> int:
        nonlocal measured
        measured += len(part)
        assert measured <= 4 * LENGTH
        return cell_len(part)

    monkeypatch.setattr(kernel_names, "cell_len", counted)
    lines = fold(text, width).split("\n")
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert max(map(cell_len, lines)) <= max(width, 2)


def test_a_long_name_with_brackets_left_open_is_shortened_at_once() -> None:
    started = time.thread_time()
    assert shorten(") [clone " * 70_000, 60) == ") [clone " * 70_000
    assert time.thread_time() - started < 10  # trying every parenthesis up to the end takes minutes


@pytest.mark.parametrize("text", LONG_TEXTS)
@pytest.mark.parametrize("kind", ["number", "name", "words"])
def test_a_cell_shows_the_start_of_a_long_text(kind: Kind, text: str) -> None:
    stream = io.StringIO()
    table = Table(text, (Column("short", kind), Column(text, kind)), [(Cell("1"), Cell(text, note=text))], remark=text)
    console.draw_table(table, Console(file=stream, width=100))
    shown = stream.getvalue()
    assert sum(not character.isspace() and character != "─" for character in shown) <= 6 * MOST_CHARACTERS
    assert len(shown) <= 1_000 * MOST_CHARACTERS


@pytest.mark.parametrize("text", LONG_TEXTS)
def test_a_sentence_shows_the_start_of_a_long_text(text: str) -> None:
    rank = make_rank(0, operators=[make_operator(text)])
    finding = Finding(code="odd", severity="warning", message=text)
    report = make_report(make_run(text, path="traces", ranks=[rank], workload=text, commit=text, findings=[finding]))
    full, short = drawn(report, 80), io.StringIO()
    answer.write(report, short, top=10, width=80)
    plain = drawn(make_report(make_run(ranks=[make_rank(0)])), 80)
    assert len(full) <= len(plain) + 30 * MOST_CHARACTERS
    assert len(short.getvalue()) <= len(plain) + 30 * MOST_CHARACTERS


def test_the_limit_of_a_text() -> None:
    assert limited("n" * MOST_CHARACTERS) == "n" * MOST_CHARACTERS
    assert limited("n" * (MOST_CHARACTERS + 1)) == "n" * (MOST_CHARACTERS - 1) + "…"


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("short", 10, "short"),
        ("void at::native::kernel<float>(float*, int)", 20, "kernel<float>"),
        ("void ns::(anonymous namespace)::reduce<a, b, c, d, e>(int)", 16, "reduce<a, b, c…>"),
        ("abcdefghijklmnopqrstuvwxyz", 11, "abcdefghijklmnopqrstuvwxyz"),
        ("a_function_with_a_long_name<float>", 16, "a_function_with_a_long_name<…>"),
        ("torch/optim/optimizer.py(512): wrapper", 27, "optimizer.py(512): wrapper"),
        ("torch/optim/optimizer.py(512): wrapper", 20, "optimizer.py(512): wrapper"),
        ("enumerate(DataLoader)#Iter.__next__", 21, "enumerate(DataLoader)#Iter.__next__"),
    ],
)
def test_nothing_but_template_arguments_is_cut(name: str, width: int, expected: str) -> None:
    assert shorten(name, width) == expected


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("short", 10, "short"),
        ("DistributedDataParallel.forward", 26, "DistributedDataParallel.\n  forward"),
        ("DistributedDataParallel.forward", 20, "DistributedData\n  Parallel.forward"),
        ("  autograd::engine::evaluate_function: AddmmBackward0", 26, "  evaluate_function: Addmm\n    Backward0"),
        ("enumerate(DataLoader)#_Iter.__next__", 30, "enumerate(DataLoader)#_Iter.\n  __next__"),
        ("kernel_of<float, int>", 12, "kernel_of\n  <float,\n  int>"),
        ("字字字字", 6, "字字字\n 字"),
    ],
)
def test_a_name_takes_more_lines_with_its_indentation(name: str, width: int, expected: str) -> None:
    assert fold_name(name, width) == expected
    assert max(map(cell_len, expected.split("\n"))) <= width
    if width > 20:
        assert widest_part(name) <= width
