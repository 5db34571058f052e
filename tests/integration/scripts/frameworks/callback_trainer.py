"""Hugging Face's Trainer with perfkit's callback: two micro-batches per step, evaluations, checkpoints."""

import argparse
import os

os.environ |= {"HF_HUB_OFFLINE": "1"}

import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments

from perfkit.integrations.transformers import PerfkitCallback


class Words(Dataset[dict[str, torch.Tensor]]):
    """Random words, labelled by the first one."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 100, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": (ids[0] > 50).long()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = DistilBertConfig(vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=16)
    arguments = TrainingArguments(
        output_dir=args.out,
        max_steps=args.steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        use_cpu=True,
        logging_steps=4,
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="steps",
        save_steps=4,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=DistilBertForSequenceClassification(config),
        args=arguments,
        train_dataset=Words(),
        eval_dataset=Words(),
        callbacks=[PerfkitCallback(args.traces)],
    )
    trainer.train()
    if trainer.args.process_index == 0:
        print("trained", trainer.state.global_step)


if __name__ == "__main__":
    main()
