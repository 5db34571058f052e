"""Models that people know by name, beside the presets that `perfkit run gpt` has."""

from collections.abc import Mapping
from typing import Any, Final

from perfkit.tools.plan.shape import Shape, bert_shape, llama_shape

GPT_PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "gpt3-175b": {"layers": 96, "width": 12288, "heads": 96, "block": 2048, "vocab_size": 50257, "bias": True},
}
"""Brown et al., "Language Models are Few-Shot Learners" (2020), table 2.1: options of gpt."""

_LLAMA: Final[Mapping[str, Mapping[str, int]]] = {
    "llama-7b": {"layers": 32, "width": 4096, "heads": 32, "groups": 32, "hidden": 11008, "vocabulary": 32000},
    "llama-13b": {"layers": 40, "width": 5120, "heads": 40, "groups": 40, "hidden": 13824, "vocabulary": 32000},
    "llama-8b": {"layers": 32, "width": 4096, "heads": 32, "groups": 8, "hidden": 14336, "vocabulary": 128256},
    "llama-70b": {"layers": 80, "width": 8192, "heads": 64, "groups": 8, "hidden": 28672, "vocabulary": 128256},
}
"""Touvron et al., "Llama 2" (2023), with 4,096 tokens; Grattafiori et al., "The Llama 3 Herd of Models" (2024), table
3, with 8,192: those with grouped queries."""
_BERT: Final[Mapping[str, Mapping[str, int]]] = {
    "bert-base": {"layers": 12, "width": 768, "heads": 12},
    "bert-large": {"layers": 24, "width": 1024, "heads": 16},
}
"""Devlin et al., "BERT" (2019), section 3."""

NAMES: Final = (*GPT_PRESETS, *_LLAMA, *_BERT)

_PUBLISHED: Final = (
    *((2, 64, 4), (6, 384, 6), (12, 768, 12), (24, 1024, 16), (24, 1536, 16), (24, 2048, 16), (32, 2560, 32)),
    *((32, 4096, 32), (40, 5120, 40), (48, 8192, 64), (96, 12288, 96), (96, 16384, 128), (128, 25600, 160)),
)
"""Layers, width and heads: Brown et al. (2020), table 2.1; from 8,192 on Narayanan et al., "Efficient Large-Scale
Language Model Training on GPU Clusters Using Megatron-LM" (2021), table 1; the first two are smaller than published."""
ASSUMED_SEQUENCE: Final = 2048
ASSUMED_VOCABULARY: Final = 50257


def named_shape(name: str) -> Shape:
    """Return the shape of a preset that `perfkit run` does not train."""
    if name in _LLAMA:
        sizes = _LLAMA[name]
        return llama_shape(name=name, sequence=4096 if sizes["vocabulary"] == 32000 else 8192, **sizes)
    return bert_shape(name=name, sequence=512, vocabulary=30522, **_BERT[name])


def assumed_sizes(parameters: float) -> dict[str, int]:
    """Return the sizes of a GPT with about this many parameters, by the names of gpt's options.

    Width and heads are those of the published model whose 12 layers width^2 is nearest; the layers make up the number,
    as a multiple of four where there are as many. A vocabulary that would take half of the parameters is left out.
    """
    layers, width, heads = min(
        _PUBLISHED, key=lambda row: max(ratio := 12 * row[0] * row[1] ** 2 / parameters, 1 / ratio)
    )
    outer = ASSUMED_VOCABULARY * width if 2 * ASSUMED_VOCABULARY * width < parameters else 0
    exact = (parameters - outer) / (12 * width**2)
    layers = max(1, 4 * round(exact / 4) if exact > 6 else round(exact))
    sizes = {"layers": layers, "width": width, "heads": heads, "block": ASSUMED_SEQUENCE}
    return sizes | ({"vocab_size": ASSUMED_VOCABULARY} if outer else {})
