"""Training with Hugging Face's Trainer under DeepSpeed: the script has neither a loop nor an optimizer of its own."""

import argparse
import os

os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_SIZE": "2", "HF_HUB_OFFLINE": "1"}

import deepspeed
import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments

# It would compile an operator for inference, for minutes.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


class Words(Dataset[dict[str, torch.Tensor]]):
    """Random words, labelled by the first one."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 100, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": (ids[0] > 50).long()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--deepspeed", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = DistilBertConfig(vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=16)
    arguments = TrainingArguments(
        output_dir=args.out,
        max_steps=args.steps,
        per_device_train_batch_size=4,
        deepspeed=args.deepspeed,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model=DistilBertForSequenceClassification(config), args=arguments, train_dataset=Words())
    trainer.train()
    if trainer.args.process_index == 0:
        print("trained", trainer.state.global_step)


if __name__ == "__main__":
    main()
