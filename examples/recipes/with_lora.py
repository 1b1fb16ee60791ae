"""A small GPT-2 fine-tuned by LoRA within epsilon 3, once, with the library's own steps.

    pip install torch==2.13.0 && pip install transformers peft ".[torch]"
    python with_lora.py
    optuna-dp check with_lora.py:objective --plan PLAN

The model is made on the spot with random weights, and the text is Python's own library, so nothing
is downloaded. With a model of your own, ``AutoModelForCausalLM.from_pretrained(name)`` takes the
place of ``GPT2LMHeadModel(config)``. It takes some seconds on one core.
"""

import sysconfig
from pathlib import Path

import optuna
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

import optuna_dp as odp

torch.set_num_threads(1)
RECORDS, LENGTH = 600, 24
# What is public: a token is one of 256 bytes, and a record is cut or filled to this length.
SCHEMA = odp.Schema.tokens(256, LENGTH, padding=ord(" "))
# A record is one line of text.
FILES = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
LINES = [line.strip() for file in FILES for line in file.read_bytes().splitlines()]
DATA = SCHEMA.encode([list(line) for line in LINES if len(line) > LENGTH // 2][:RECORDS])
PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=RECORDS, epochs=20, pilots=0)


def record_loss(model, ids):
    """The loss of one record: the mean over its own tokens."""
    return model(input_ids=ids[None], labels=ids[None]).loss


def record_score(model, ids):
    """The share of the record's tokens that are predicted from those before."""
    predicted = model(input_ids=ids[None]).logits[0, :-1].argmax(-1)
    return (predicted == ids[1:]).float().mean()


def make_model():
    config = GPT2Config(
        vocab_size=256, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, use_cache=False
    )
    lora = LoraConfig(
        r=4, target_modules=["c_attn"], modules_to_save=["lm_head"], fan_in_fan_out=True,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    return get_peft_model(GPT2LMHeadModel(config), lora)


def objective(trial, data=DATA):
    run = odp.start_run(trial)
    model = make_model()
    trained = odp.train(
        run,
        model,
        data,
        record_loss=record_loss,
        record_score=record_score,
        physical_batch_size=64,  # memory for the gradients of 64 records at a time
    )
    if not run.is_pilot:  # of the last run
        trained.model.save_pretrained("lora")  # the trained part only
    return trained.score


def main():
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    print(release.value, release.guarantee.epsilon(delta=1e-5), release.spending["training"])


if __name__ == "__main__":
    main()
