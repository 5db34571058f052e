import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import SequentialSampler

from perfkit_workloads.base import Workload
from perfkit_workloads.classify import _rate_factor
from perfkit_workloads.classify_text import LABELS, VOCABULARY, encode, make_reviews, tokenise, write_review
from perfkit_workloads.data.loader import make_loader
from tests.unit.workloads.conftest import make, make_source


def words(ids: list[int]) -> list[str]:
    return [VOCABULARY[number] for number in ids]


def test_text_becomes_the_ids_of_its_words() -> None:
    assert words(tokenise("The film was not very Good, though.")) == [
        *("the", "film", "was", "not", "very", "good", ",", "though", ".")
    ]
    assert words(tokenise("a zebra")) == ["[UNK]", "[UNK]"]
    assert words(encode("the film", 6)) == ["[CLS]", "the", "film", "[SEP]", "[PAD]", "[PAD]"]
    assert words(encode("the film was good", 4)) == ["[CLS]", "the", "film", "[SEP]"]
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    assert VOCABULARY[0] == "[PAD]"  # zero, which `loss` does not attend to


def test_a_label_is_what_most_clauses_say() -> None:
    good = {"good", "great", "fine", "excellent", "superb", "brilliant", "lovely", "charming", "clever", "funny"}
    good |= {"moving", "fresh", "gripping", "warm", "strong"}
    random = np.random.default_rng(1)
    for row in random.integers(0, 1 << 30, (200, 43)):
        text, label = write_review(row)
        clauses = re.split(r" the ", f" {text}")[1:]
        praise = [bool(good & {*clause.split()}) != ("not" in clause.split()) for clause in clauses]
        assert len(praise) in {3, 5, 7}
        assert label == (sum(praise) > len(praise) / 2), text
        assert "[UNK]" not in words(tokenise(text))


def test_reviews_are_balanced_and_differ() -> None:
    arrays = make_reviews(np.random.default_rng(0), 1000, 64)
    assert abs(float(arrays["label"].mean()) - 0.5) < 0.05
    assert len({row.tobytes() for row in arrays["tokens"]}) == 1000
    assert int(arrays["tokens"].max()) < len(VOCABULARY)
    lengths = (arrays["tokens"] != 0).sum(1)
    assert lengths.min() < 25 < 40 < lengths.max() <= 64


def test_every_split_into_ranges_gives_the_same_samples() -> None:
    workload = make("classify", samples=2500)
    spec = workload.data_spec(7)
    whole = workload.generate(spec, 0, 2500)
    parts = [workload.generate(spec, start, min(start + 700, 2500)) for start in range(0, 2500, 700)]
    for field in spec.fields:
        joined = np.concatenate([part[field.name] for part in parts])
        assert joined.dtype == field.dtype
        assert joined.shape == (2500, *field.shape)
        np.testing.assert_array_equal(joined, whole[field.name])


@pytest.mark.parametrize("source", ["memory", "hdf5", "safetensors"])
@pytest.mark.parametrize("read", ["per-sample", "batched"])
def test_every_source_gives_the_same_batch(source: str, read: str, tmp_path: Path) -> None:
    workload = make("classify", samples=40)
    spec = workload.data_spec(0)
    reader, options = make_source(source=source, read=read, data_dir=str(tmp_path))
    dataset = reader.dataset(workload, spec, reader.prepare(workload, spec, options), options)
    batch = next(iter(make_loader(dataset, SequentialSampler(range(40)), options, 8)))
    for name, values in workload.generate(spec, 0, 8).items():
        np.testing.assert_array_equal(batch[name].numpy(), values)


def test_the_rate_rises_and_falls_to_zero() -> None:
    assert [_rate_factor(step, 2, 6) for step in range(7)] == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    assert _rate_factor(0, 0, 1) == 1.0
    with pytest.raises(ValueError, match="width 6 is not divisible by heads 4"):
        make("classify", width=6)


def build(**options: object) -> tuple[nn.Module, dict[str, Tensor]]:
    workload = make("classify", **options)
    torch.manual_seed(0)
    model = workload.build()
    arrays = workload.generate(workload.data_spec(0), 0, 32)
    return model, {name: torch.from_numpy(values) for name, values in arrays.items()}


def loss_of(workload: Workload[Any], model: nn.Module, batch: dict[str, Tensor]) -> float:
    return float(workload.loss(model, batch).detach())


@pytest.mark.slow  # importing transformers takes seconds
def test_the_encoder_has_distilberts_shape_and_ignores_padding() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    workload = make("classify", samples=32, dropout=0.0, learning_rate=2e-3)
    large = make("classify", **{k: v for k, v in workload.PRESETS["distilbert"].items() if k != "batch_size"})
    with torch.device("meta"):
        model = large.build()
    assert sum(p.numel() for p in model.parameters()) == 66_955_010  # DistilBERT with a classifier of two labels
    assert [type(layer).__name__ for layer in large.layers(model)] == ["TransformerBlock"] * 6
    # 6 layers of 12 x 768^2 weights (and 13 x 768 biases and norms); the classifier sees one token of 128.
    layers, classifier = 6 * (12 * 768**2 + 13 * 768), 768**2 + 768 + 2 * 768 + 2
    expected = 6 * layers + 12 * 6 * 768 * 128 + 6 * classifier / 128
    assert large.flops_per_token(model) == pytest.approx(expected)

    model, batch = build(samples=32, dropout=0.0)
    assert loss_of(workload, model, batch) == pytest.approx(np.log(len(LABELS)), rel=0.05)
    done = workload.optimization(model, world_size=1, total_steps=60, device_type="cpu")
    plain = {id(p) for p in done.optimizer.param_groups[1]["params"]}
    assert {p.dim() for p in model.parameters() if id(p) in plain} == {1}
    assert {p.dim() for p in model.parameters() if id(p) not in plain} == {2}
    assert done.clip_norm == 1.0
    for _ in range(36):
        loss = workload.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        done.optimizer.step()
        done.optimizer.zero_grad()
    assert loss_of(workload, model, batch) < 0.2
    flipped = batch | {"label": 1 - batch["label"]}
    padded = flipped | {"tokens": torch.nn.functional.pad(batch["tokens"], (0, 9))}
    assert loss_of(workload, model, flipped) > 1
    assert loss_of(workload, model, padded) == pytest.approx(loss_of(workload, model, flipped), rel=1e-4)
