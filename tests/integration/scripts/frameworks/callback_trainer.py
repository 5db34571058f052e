"""Hugging Face's Trainer with perfkit's callback: two micro-batches per step, evaluations, checkpoints."""

import argparse
import os

os.environ |= {"HF_HUB_OFFLINE": "1"}

import torch
from transformers import Trainer, TrainingArguments
from words import Words, classifier  # type: ignore[import-not-found]  # the file beside this one

from perfkit.integrations.transformers import PerfkitCallback


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
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
        model=classifier(),
        args=arguments,
        train_dataset=Words(64),
        eval_dataset=Words(64),
        callbacks=[PerfkitCallback(args.traces, schedule="wait=1,warmup=1,active=3")],
    )
    trainer.train()
    if trainer.args.process_index == 0:
        print("trained", trainer.state.global_step)


if __name__ == "__main__":
    main()
