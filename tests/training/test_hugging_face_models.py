"""Language and image models of Hugging Face, of tiny shapes, step by the clipped sum as well."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import torch_models  # noqa: E402
from started import NO_NOISE, claimed, started  # noqa: E402

import optuna_dp as odp  # noqa: E402
from optuna_dp.study.entries import TRAININGS  # noqa: E402
from optuna_dp.training.schedules import Schedule  # noqa: E402

RECORDS, NORM, LENGTH, TOKENS, CLASSES = 6, 0.5, 7, 40, 3
SMALL: dict[str, Any] = {"vocab_size": TOKENS, "num_hidden_layers": 2, "num_attention_heads": 2}


def gpt2(attention: str) -> Any:
    config = transformers.GPT2Config(
        vocab_size=TOKENS, n_positions=16, n_embd=16, n_layer=2, n_head=2,
        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, attn_implementation=attention,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama(attention: str) -> Any:
    config = transformers.LlamaConfig(
        **SMALL, hidden_size=16, intermediate_size=32, num_key_value_heads=1,
        max_position_embeddings=32, attn_implementation=attention,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def vit(attention: str) -> Any:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=8, patch_size=4, num_channels=1, num_labels=CLASSES,
        attn_implementation=attention,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def bert(attention: str) -> Any:
    config = transformers.BertConfig(
        **SMALL, hidden_size=16, intermediate_size=32, num_labels=CLASSES,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation=attention,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def lora(attention: str) -> Any:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Advice of transformers to its developers.
        model = peft.get_peft_model(gpt2(attention), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # Zeros at first, where the gradient of lora_A is zero.
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def of_language(model: Any, tokens: Any) -> Any:
    return model(input_ids=tokens[None], labels=tokens[None]).loss


def of_image(model: Any, image: Any, label: Any) -> Any:
    return torch_models.cross_entropy(model(image[None]).logits, label[None])


def of_text(model: Any, tokens: Any, label: Any) -> Any:
    return torch_models.cross_entropy(model(input_ids=tokens[None]).logits, label[None])


def of_masked_text(model: Any, tokens: Any, mask: Any, label: Any) -> Any:
    """With a mask that holds for a record by itself, in four axes."""
    every_pair = mask[None, None, None, :].bool().expand(1, 1, LENGTH, LENGTH)
    output = model(input_ids=tokens[None], attention_mask=every_pair)
    return torch_models.cross_entropy(output.logits, label[None])


def of_plainly_masked_text(model: Any, tokens: Any, mask: Any, label: Any) -> Any:
    output = model(input_ids=tokens[None], attention_mask=mask[None])
    return torch_models.cross_entropy(output.logits, label[None])


def tokens() -> Any:
    return torch.randint(0, TOKENS, (RECORDS, LENGTH))


def labels() -> Any:
    return torch.randint(0, CLASSES, (RECORDS,))


def padded() -> Any:
    mask = torch.ones(RECORDS, LENGTH, dtype=torch.long)
    mask[::2, 4:] = 0
    return mask


MODELS: dict[
    str, tuple[Callable[[str], Any], Callable[..., Any], Callable[[], tuple[Any, ...]]]
] = {
    "GPT-2": (gpt2, of_language, lambda: (tokens(),)),
    "Llama": (llama, of_language, lambda: (tokens(),)),
    "ViT": (vit, of_image, lambda: (torch.randn(RECORDS, 1, 8, 8), labels())),
    "BERT": (bert, of_text, lambda: (tokens(), labels())),
    "BERT with padding": (bert, of_masked_text, lambda: (tokens(), padded(), labels())),
    "BERT with a plain mask": (
        bert,
        of_plainly_masked_text,
        lambda: (tokens(), padded(), labels()),
    ),
    "LoRA": (lora, of_language, lambda: (tokens(),)),
}


@pytest.mark.filterwarnings("ignore:Records are computed")  # One by one, with a plain mask.
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_step_is_the_clipped_sum_of_single_gradients(kind: str, attention: str) -> None:
    torch.manual_seed(0)
    make, record_loss, made_up = MODELS[kind]
    model, records = make(attention).train(), made_up()
    expected, norms = torch_models.slow_clipped_sum(
        model,
        lambda m, i: record_loss(m, *(part[i] for part in records)),
        list(range(RECORDS)),
        NORM,
    )
    assert max(norms) > NORM
    run = started(RECORDS, noise_multiplier=NO_NOISE)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before = torch_models.values(model)
    odp.train(
        run,
        model,
        records,
        record_loss=record_loss,
        optimizer="sgd",
        learning_rate=1.0,
        schedule=Schedule("constant"),
        clipping_norm=NORM,
        score=None,
    )
    found = (before - torch_models.values(model)) * RECORDS
    assert float((found - expected).norm()) < 1e-3 * max(1.0, float(expected.norm()))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    if kind == "LoRA":
        after = model.state_dict()
        moved = {name for name in state if not torch.equal(state[name], after[name])}
        assert moved <= trained
        assert len(trained) < len(state)


def test_dropout_of_a_language_model_is_trained_with() -> None:
    config = transformers.GPT2Config(
        vocab_size=TOKENS, n_positions=16, n_embd=16, n_layer=2, n_head=2
    )
    model = transformers.GPT2LMHeadModel(config).train()
    run = started(RECORDS)
    inputs = odp.made_up_tokens(TOKENS, LENGTH)
    odp.train(run, model, (tokens(),), record_loss=of_language, inputs=inputs, score=None)
    assert claimed(run, TRAININGS)[0]["finished"]
    assert not model.training


def test_an_image_model_is_scored_by_its_logits() -> None:
    run = started(RECORDS)
    records = torch.randn(RECORDS, 1, 8, 8), labels()
    trained = odp.train(
        run,
        vit("sdpa"),
        records,
        loss=lambda output, target: torch_models.cross_entropy(output.logits, target),
        score="accuracy",
        inputs=odp.made_up_images(1, 8, 8),
    )
    assert trained.score is not None
