"""Continuations of one text, sampled at a temperature: how varied they are, and how likely to the model itself."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..api.texts import place_of
from ..commands.loading import load, model_name
from ..training.console.input_error import InputError
from ..training.evaluation.decoding import generate
from ..training.reporting.markdown import fenced, markdown_table
from ..translation.likelihood import log_probabilities, until_end
from .card import Card, write_card

ORDERS = (1, 2, 3)


@dataclass(frozen=True)
class Continuation:
    """What a model wrote behind a prompt."""

    text: str
    tokens: int
    log_probability: float
    """The mean of its tokens, in nats, under the model as it is (temperature 1)."""


def distinct(texts: Sequence[str], order: int) -> float:
    """Distinct n-grams of words over all n-grams of some texts (distinct-n, Li et al. 2016, arXiv 1510.03055); NaN
    where there are none."""
    grams = [tuple(words[i : i + order]) for words in map(str.split, texts) for i in range(len(words) - order + 1)]
    return len(set(grams)) / len(grams) if grams else float("nan")


@torch.no_grad()
def continue_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    *,
    samples: int,
    temperature: float,
    max_new_tokens: int,
    seed: int,
) -> list[Continuation]:
    """Continuations, sampled from the whole distribution; with temperature 0, the likeliest token each time."""
    ids = tokenizer(prompt, add_special_tokens=False).input_ids
    if tokenizer.bos_token_id is not None:  # in training every text begins with it
        ids = [tokenizer.bos_token_id, *ids]
    input_ids = torch.tensor([ids], device=model.device)  # (1, P)
    sampling: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(seed)
        output = generate(
            model,
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids),
            num_return_sequences=samples,
            max_new_tokens=max_new_tokens,
            **sampling,
        )  # (samples, P + T)
    # Padding stands behind the end, where a causal model does not look back from.
    written, logits = output[:, len(ids) :], model(output).logits[:, len(ids) - 1 : -1]
    end = tokenizer.eos_token_id
    counts = until_end(written, [] if end is None else [end])  # (samples, T)
    likelihoods = log_probabilities(logits, written)
    return [
        Continuation(
            text=tokenizer.batch_decode([row[count]], skip_special_tokens=True)[0],
            tokens=int(count.sum()),
            log_probability=float(likelihood[count].mean()),
        )
        for row, likelihood, count in zip(written, likelihoods, counts, strict=True)
    ]


def sample_continuations(
    folder: Path,
    command: str,
    *,
    model: str,
    prompt: str,
    temperature: float,
    samples: int,
    max_new_tokens: int,
    seed: int,
    trust_remote_code: bool,
) -> Path:
    """Continues a text several times, and once greedily to compare with, and writes the card.

    Args:
        folder: of the exercise.
        command: for the card.
        model: a language model: its folder, its run's, or its name on the Hub.
        prompt: what is continued.
        temperature: divides the logits.
        samples: how many continuations.
        max_new_tokens: of the longest.
        seed: of the sampling.
        trust_remote_code: as `load` takes it.

    Returns:
        The path of the card.

    Raises:
        InputError: if a number is out of its range, or the model is no language model or cannot be loaded.
    """
    started = time.perf_counter()
    if not 0 < temperature < float("inf"):
        raise InputError(f"--temperature is {temperature}; it must be greater than 0")
    for name, value in (("samples", samples), ("max_new_tokens", max_new_tokens)):
        if value < 1:
            raise InputError(f"--{name} is {value}; it must be at least 1")
    place = place_of(model)
    loaded, tokenizer = load(place, "text-generation", trust_remote_code=trust_remote_code)
    options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "seed": seed}
    sampled = continue_text(loaded, tokenizer, prompt, samples=samples, temperature=temperature, **options)
    greedy = continue_text(loaded, tokenizer, prompt, samples=1, temperature=0, **options)
    figures = {
        "temperature": temperature,
        "continuations": [asdict(one) for one in sampled],
        "greedy": asdict(greedy[0]),
        "distinct": {order: distinct([one.text for one in sampled], order) for order in ORDERS},
        "mean_log_probability": sum(one.log_probability * one.tokens for one in sampled)
        / sum(one.tokens for one in sampled),
    }
    card = Card(
        title=f"{samples} continuations at temperature {temperature:g}",
        summary=f"Sampled by {model_name(place)} from its whole distribution, up to {max_new_tokens} tokens, and one "
        "greedy continuation beside them.",
        sections=[
            "Prompt:",
            fenced(prompt),
            "## Results",
            _table(sampled, greedy),
            "distinct-n is the number of different n-grams of words over that of all (Li et al. 2016); of all samples, "
            "over them together. The log-probability is the mean over tokens, in nats, under the model as it "
            "is, without a temperature.",
            "## Continuations",
            *(f"{number}:\n\n{fenced(one.text)}" for number, one in enumerate(sampled, start=1)),
            f"Greedy:\n\n{fenced(greedy[0].text)}",
        ],
        figures=figures,
        command=command,
        seed=seed,
        minutes=(time.perf_counter() - started) / 60,
        software=("paperformer", "torch", "transformers"),
    )
    return write_card(folder, card)


def _table(sampled: Sequence[Continuation], greedy: Sequence[Continuation]) -> str:
    titles = ["Continuation", "Tokens", "Mean log-probability", *(f"distinct-{order}" for order in ORDERS)]
    groups = {str(number): [one] for number, one in enumerate(sampled, start=1)}
    rows = []
    for name, group in (groups | {"all samples": list(sampled), "greedy": list(greedy)}).items():
        tokens = sum(one.tokens for one in group)
        mean = sum(one.log_probability * one.tokens for one in group) / tokens
        shares = [distinct([one.text for one in group], order) for order in ORDERS]
        rows.append([name, f"{tokens:,}", f"{mean:.3f}", *(f"{share:.3f}" for share in shares)])
    return markdown_table(titles, rows, right=range(1, len(titles)))
