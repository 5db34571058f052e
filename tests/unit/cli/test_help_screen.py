import re
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from perfkit.cli import COMMANDS, main
from perfkit.cli.help_screen import SCREEN_LINES, Common
from perfkit.cli.typer_app import App
from perfkit_workloads import WORKLOADS

RUNS = [f"run {name}" for name in WORKLOADS.builtin]
_FLAG = re.compile(r"^  (?:-\w, )?(--[\w-]+)", re.MULTILINE)


def shown(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*command.split(), option]) == 0
    return capsys.readouterr().out


def flags(text: str) -> list[str]:
    return _FLAG.findall(text)


@pytest.mark.parametrize("name", [*COMMANDS, "data prepare", *RUNS, "run train.py"])
def test_help_fits_on_a_screen_and_names_the_help_that_has_the_rest(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    short, full = shown(name, "--help", capsys), shown(name, "--help-all", capsys)
    assert len(short.splitlines()) <= SCREEN_LINES
    if short == full:
        return
    own = [flag for flag in flags(full) if flag != "--help"]
    assert set(flags(short)) <= set(own)
    assert short.splitlines()[-1] == f"Details, and all {len(own)} options: perfkit {name} --help-all"


@pytest.mark.parametrize("name", ["analyze", *RUNS])
def test_most_options_are_of_the_full_help_only_which_has_each_once_by_group(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    short, full = shown(name, "--help", capsys), shown(name, "--help-all", capsys)
    assert 3 * len(flags(short)) <= 2 * len(flags(full))
    assert len(set(flags(full))) == len(flags(full))
    groups = re.findall(r"^(\w.*):$", full, re.MULTILINE)
    assert len(groups) > 3
    assert len(set(groups)) == len(groups)


def test_the_full_help_has_every_option_that_is_parsed(capsys: pytest.CaptureFixture[str]) -> None:
    from perfkit.cli.analyze import app

    parsed = {flag for parameter in get_command(app).params for flag in parameter.opts if flag.startswith("--")}
    assert set(flags(shown("analyze", "--help-all", capsys))) == parsed | {"--help"}


def sample(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Where: a folder. Or a file.")],
    common: Annotated[int, typer.Option(rich_help_panel=Common("First"), help="How many; at least 1.")] = 3,
    rare: Annotated[str, typer.Option(rich_help_panel="First", help="Rare.")] = "x",
    without: Annotated[bool, typer.Option("--without", help="Without a group.")] = False,
) -> None:
    raise AssertionError((path, common, rare, without))


def printed(option: str, details: int) -> str:
    app = App()
    paragraphs = ["Do this. In one paragraph.", *(f"Details {n}." for n in range(details)), "\b\nsample here\n  now"]
    app.command(help="\n\n".join(paragraphs))(sample)
    return CliRunner().invoke(app, [option], env={"COLUMNS": "80"}).output


def test_a_help_that_fits_is_shown_as_a_whole() -> None:
    assert printed("--help", 1) == printed("--help-all", 1)


def test_the_short_help_has_first_sentences_of_common_options_and_what_frames_the_text() -> None:
    full = printed("--help-all", 20)
    assert "Details 7." in full
    assert "First:" in full
    assert "--rare" in full
    assert (
        printed("--help", 20)
        == """\
Usage: sample [OPTIONS] {PATH}

  Do this. In one paragraph.

  sample here
    now

Arguments:
  PATH <str>  Where.

Options:
  --common <int>  How many.  [default: 3]
  --without       Without a group.

Details, and all 3 options: sample --help-all
"""
    )
