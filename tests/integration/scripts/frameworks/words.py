"""Random words for a text classifier, and its small shape."""

import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification


class Words(Dataset[dict[str, torch.Tensor]]):
    """Random words, labelled by the first one."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 100, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": (ids[0] > 50).long()}


def classifier() -> DistilBertForSequenceClassification:
    config = DistilBertConfig(vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=16)
    return DistilBertForSequenceClassification(config)
