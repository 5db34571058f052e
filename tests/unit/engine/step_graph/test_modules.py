"""The modules that parts of the graph belong to, and what is on the critical path of them: of a made trace."""

from collections import Counter
from pathlib import Path

import pytest

from perfkit.engine.step_graph.graph import COMPUTE, MEMCPY, StepGraph
from perfkit.engine.step_graph.modules import GraphModule, class_paths, shown_paths
from perfkit.engine.whatif.effects.modules import matching_modules
from perfkit.errors import UsageError
from perfkit.pipeline import whatif
from perfkit.subjects.critical_path.summarize import MOST_SPANS, summarize_path
from tests.support.traces.step_graphs import graph_of_built
from tests.support.traces.trace_builder import TraceBuilder
from tests.support.traces.work_traces import module_step

NAMES = [["Net_0", [""]], ["Block_0", ["layers.1"]], ["Block_1", ["layers.0", "head"]]]


def device_us(graph: StepGraph) -> dict[str, float]:
    """Return the time of kernels and copies by module."""
    found = Counter[str]()
    kinds, modules = graph.parts.kind.tolist(), graph.parts.module.tolist()
    for kind, module, ns in zip(kinds, modules, graph.parts.ns.tolist(), strict=True):
        if kind in (COMPUTE, MEMCPY):
            found[graph.modules[module].instance] += ns / 1000
    return dict(found)


def test_kernels_belong_to_modules_and_their_backward_to_those_of_the_forward_operators(tmp_path: Path) -> None:
    graph = graph_of_built(tmp_path, module_step())
    found = device_us(graph)
    assert found["Block_0"] == 40 + 80
    assert found["Block_1"] == 60 + 120
    assert found["(optimizer)"] == 50
    assert found["(outside)"] == 10
    assert found["(unknown)"] == 5


def test_recorded_names_are_shown_and_those_of_equal_layers_alike(tmp_path: Path) -> None:
    graph = graph_of_built(tmp_path, module_step().header(perfkitModules=NAMES))
    assert {path[-1] for path in shown_paths(graph.modules) if not path[-1].startswith("(")} == {
        "Net",
        "layers.* (Block)",
        "layers.* = head (Block)",
    }
    path = summarize_path(graph, 1, 0, [])
    assert sum(row.total_ns for row in path.modules if row.depth == 0) == path.total_ns
    assert "Net" in {row.name for row in path.modules}


def test_modules_match_by_name_by_number_and_by_classes() -> None:
    modules = [
        GraphModule(-1, "DistributedDataParallel_0", ("",)),
        GraphModule(0, "GPT_0", ("",)),
        GraphModule(1, "Block_1", ("layers.0",)),
        GraphModule(2, "Attention_0", ("layers.0.attn", "shared")),
        GraphModule(1, "Block_0", ("layers.1",)),
        GraphModule(-1, "(optimizer)"),
    ]
    assert class_paths(modules)[3] == "DistributedDataParallel.GPT.Block.Attention"
    for pattern, places in {
        "layers.0": [2, 3],
        "layers.*": [2, 3, 4],
        "layers.*.attn": [3],
        "shared": [3],
        "Block_0": [4],
        "Block": [2, 3, 4],
        "Block.Attention": [3],
        "*.Attention": [3],
        "GPT": [1, 2, 3, 4],
        "*": [0, 1, 2, 3, 4],
        "tention": [],
        "(optimizer)": [],
    }.items():
        assert matching_modules(modules, pattern).nonzero()[0].tolist() == places, pattern


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("module:layers.2=0", r"no module that takes time matches; the run has (layers\.\* = head|layers\.\*|Net)"),
        ("module:(optimizer)=0", "no module"),
    ],
)
def test_modules_that_there_are_not_are_refused_with_those_that_there_are(
    tmp_path: Path, change: str, says: str
) -> None:
    path = module_step().header(perfkitModules=NAMES).write(tmp_path / "rank0.json")
    with pytest.raises(UsageError, match=says):
        whatif.predict(path, [change])


def test_a_change_of_a_module_scales_its_kernels_forward_and_backward(tmp_path: Path) -> None:
    path = module_step().header(perfkitModules=NAMES).write(tmp_path / "rank0.json")
    one = whatif.predict(path, ["module:head=0.5x"]).prediction
    assert one is not None
    assert one.changes[0].applies_to == "1 module, 180 µs per step"
    assert "kernels change" in one.changes[0].assumptions[0]
    other = whatif.predict(path, ["module:Block=0.5x"]).prediction
    assert other is not None
    assert other.changes[0].applies_to.endswith("300 µs per step")


def test_a_path_with_many_changes_is_drawn_in_cells(tmp_path: Path) -> None:
    builder = TraceBuilder(world_size=1)
    builder.step(1, 0, 10_000)
    for number in range(450):
        builder.op("aten::mm", number * 20, 10)
    graph = graph_of_built(tmp_path, builder.gloo("all_reduce", 9_500, 100))
    drawn = summarize_path(graph, 1, 0, []).drawn
    assert drawn is not None
    assert len(drawn.spans) <= MOST_SPANS
    assert sum(span.ns for span in drawn.spans) == drawn.total_ns
