from collections.abc import Mapping
from pathlib import Path

from perfkit.options.identity import identity_options
from perfkit.tools.sweep.plan import Axis
from perfkit.tools.sweep.point import make_point
from tests.support.reports.sweep_builders import CONFIG, points_of, wanted


def name(config: Mapping[str, object], shown: dict[str, str] | None = None, ranks: int = 2) -> str:
    return make_point(
        "gpt",
        ranks,
        {**CONFIG, "trace_dir": "t", **config},
        [],
        shown or {},
        CONFIG["batch_size"],
    ).name


def test_a_name_is_readable_and_stable() -> None:
    # Written down: a name that changes loses the points of every sweep that there is.
    assert name({"data_dir": "t/.data"}) == "gpt-memory-2ranks-batch16-2fd4bd3d-r1"
    varied = points_of(wanted(axes=(Axis("source", ("hdf5",)), Axis("compile", ("true",)))))
    assert varied[1].title == "gpt-hdf5-2ranks-batch16-compile=true"


def test_each_option_and_the_ranks_identify_a_point() -> None:
    names = [name({}), name({"steps": 9}), name({"source": "hdf5"}), name({}, ranks=4), name({"inject": ["x"]})]
    assert len({text[-11:] for text in names}) == len(names)


def test_the_location_of_a_run_does_not_identify_it() -> None:
    here = {"trace_dir": "a", "data_dir": "a/.data", "name": None, "config": "x.toml"}
    there = {"trace_dir": "/b", "data_dir": "/b/.data", "name": "y", "config": None}
    assert name(here) == name(there)
    assert name(here) != name(here | {"data_dir": "/fast"})
    assert identity_options(there | {"steps": 3}) == {"steps": 3, "data_dir": None}


def test_any_value_gives_a_valid_folder_name() -> None:
    title = name({}, {"text": "../a b/'$(x)'\n" + 300 * "y", "inject": "rank=1,phase=backward,delay=60ms"})
    assert "/" not in title
    assert "text=" + 24 * "y" in title
    assert title.isascii()
    assert title.isprintable()
    long = name({}, {f"option{number}": 30 * "z" for number in range(20)})
    assert len(long) < 200
    assert long.endswith("-r1")


def test_repeats_share_a_key_and_nothing_else() -> None:
    (first, _), (again, _) = points_of(wanted()), points_of(wanted(trace_dir=str(Path("elsewhere"))))
    assert first.as_repeat(2).name == first.name.removesuffix("1") + "2"
    assert first.as_repeat(2).key == first.key == again.key
