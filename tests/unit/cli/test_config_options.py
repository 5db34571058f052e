from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct
from typer.testing import CliRunner, Result

from perfkit.cli.config_options import Layer, command, make_record, merge_layers, options, read_toml, record
from perfkit.cli.recording.run_options import make_job
from perfkit.errors import UsageError
from perfkit.options.run import RunConfig
from perfkit_workloads import WORKLOADS
from perfkit_workloads.data import SOURCES, DataOptions


class Sample(Struct, frozen=True, kw_only=True):
    count: Annotated[int, Meta(ge=1, le=9, description="how many")] = 3
    rate: Annotated[float, Meta(gt=0, lt=1, description="how fast")] = 0.5
    kind: Annotated[Literal["a", "b"], Meta(description="which")] = "a"
    on: Annotated[bool, Meta(description="whether")] = False
    limit: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="at most")] = None
    many: Annotated[tuple[str, ...], Meta(description="repeatable")] = ()
    text: Annotated[str | None, Meta(description="words")] = None

    def __post_init__(self) -> None:
        if self.count == 9 and self.on:
            raise ValueError("count 9 excludes on")


def invoke(*arguments: str) -> tuple[Result, dict[str, Any]]:
    seen: dict[str, Any] = {}
    app = command(lambda _, given: seen.update(given), options(Sample, "Sample", {"text": ["p", "q"]}), "Try it.")
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}), seen


def parse(*arguments: str) -> dict[str, Any]:
    result, seen = invoke(*arguments)
    assert (result.exit_code, result.output) == (0, "")
    return seen


def test_only_given_options_are_returned() -> None:
    assert parse() == {}
    assert parse("--count", "3") == {"count": 3}  # the default, but given
    every = ("--count", "4", "--rate", "0.1", "--kind", "b", "--on", "--limit", "2", "--many", "x", "--many", "y")
    assert parse(*every, "--text", "p") == {
        "count": 4,
        "rate": 0.1,
        "kind": "b",
        "on": True,
        "limit": 2,
        "many": ["x", "y"],
        "text": "p",
    }
    assert parse("--no-on") == {"on": False}


@pytest.mark.parametrize("arguments", [["--kind", "c"], ["--text", "r"], ["--count", "x"], ["--rate", "x"]])
def test_types_and_choices_come_from_the_field(arguments: list[str]) -> None:
    result, seen = invoke(*arguments)
    assert (result.exit_code, seen) == (2, {})
    assert arguments[0] in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--count", "0"], ["--count", "10"], ["--rate", "0"], ["--rate", "1"], ["--limit", "0"]],
)
def test_the_record_checks_ranges(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match=f"^{arguments[0]} = {arguments[1]}"):
        record(Sample, parse(*arguments))


def test_help_shows_defaults_and_ranges() -> None:
    text = invoke("--help")[0].output
    assert "\nSample:\n" in text
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    for part in (
        "--count <int> How many. [default: 3; x>=1; x<=9]",
        "--rate <float> How fast. [default: 0.5; x>0; x<1]",
        "--kind <a|b> Which. [default: a]",
        "--on / --no-on Whether. [default: off]",
        "--limit <int> At most. [x>=1]",
        "--many <str> Repeatable.",
        "--text <p|q> Words.",
    ):
        assert part in words


def test_later_layers_win(tmp_path: Path) -> None:
    file = tmp_path / "o.toml"
    file.write_text('count = 5\nrate = 0.25\nmany = ["x"]\n')
    layers = [Layer("preset p", {"count": 4, "kind": "b"}), read_toml(file), Layer("", {"rate": 0.75})]
    assert make_record(Sample, merge_layers([Sample], layers)) == Sample(count=5, rate=0.75, kind="b", many=("x",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("speed = 1", "o.toml: there is no option speed"),
        ('count = "4"', "o.toml: count = '4': expected a whole number, not text"),
        ("count = 0", "o.toml: count = 0: expected a whole number of at least 1"),
        ("count = 9\non = true", "count 9 excludes on"),
        ("a-b = 1\na_b = 2", "given twice"),
        ("count = ", "not valid TOML"),
        ('config = "x"', "command line only"),
        ("[run]\ncount = 1", "there is no option run"),
    ],
)
def test_invalid_files_are_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "o.toml"
    file.write_text(content)
    with pytest.raises(UsageError, match=message):
        make_record(Sample, merge_layers([Sample], [read_toml(file)]))
    with pytest.raises(UsageError, match="No such file"):
        read_toml(tmp_path / "none.toml")


@pytest.mark.parametrize("source", SOURCES.builtin)
@pytest.mark.parametrize("name", WORKLOADS.builtin)
def test_no_option_has_two_meanings_and_every_preset_fits(name: str, source: str) -> None:
    workload = WORKLOADS.load(name)
    names = [
        field
        for struct in (RunConfig, DataOptions, SOURCES.load(source).Config, workload.Config)
        for field in struct.__struct_fields__
    ]
    assert len(set(names)) == len(names)
    for preset in workload.PRESETS:
        if source == "bin" and name != "gpt":  # token files contain one sequence
            with pytest.raises(UsageError, match="one sequence of token ids"):
                make_job(workload, {"preset": preset, "source": source})
            continue
        job = make_job(workload, {"preset": preset, "source": source})
        assert job.effective["preset"] == preset
        assert set(names) == set(job.effective)


def test_precedence_of_presets(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('preset = "tiny"\nbatch_size = 5\n')
    transformer = WORKLOADS.load("transformer")
    job = make_job(transformer, {"config": str(file), "d_model": 64})
    assert (job.effective["preset"], job.run.batch_size, job.effective["d_model"]) == ("tiny", 5, 64)
    assert job.effective["heads"] == 4  # the preset's
    assert make_job(transformer, {}).effective["d_model"] == 512
    file.write_text('preset = "huge"\n')
    with pytest.raises(UsageError, match="preset 'huge'"):
        make_job(transformer, {"config": str(file)})


def test_a_mesh_of_another_number_of_ranks_is_refused_before_what_follows_from_its_sizes() -> None:
    with pytest.raises(UsageError, match="--mesh pp=3: 3 ranks, but this run has 2"):
        make_job(WORKLOADS.load("gpt"), {"mesh": "pp=3"}, 2)
    with pytest.raises(UsageError, match="--batch-size 16 is not divisible by --micro-batches 6, the default"):
        make_job(WORKLOADS.load("gpt"), {"mesh": "pp=3", "layers": 3}, 3)
