"""transformers' own server, and its continuous batching: the model is run by them, and compared with `generate`."""

import contextlib
from typing import Any

import torch
import transformers
from transformers import ContinuousBatchingConfig, GenerationConfig, PreTrainedModel
from transformers.utils.import_utils import is_serve_available

from ..conversion.gpt2 import GPT2
from ..conversion.llama import LLAMA
from ..training.console.input_error import InputError
from .findings import Verdict

PROMPTS = (6, 3, 11)
"""Tokens of the prompts that are continued."""
NEW_TOKENS = 6


def check_serve(model: PreTrainedModel, place: str) -> Verdict:
    """What speaks for and against `transformers serve`.

    It looks for the model's class in transformers itself (cli/serving/model_manager.py), and so has no custom code.
    """
    verdict = Verdict("transformers serve", f"transformers serve {place}")
    if not _note_language_model(verdict, model):
        return verdict
    name = (model.config.architectures or [type(model).__name__])[0]
    verdict.note("a class of transformers' own", hasattr(transformers, name), _way_out(model, place, name))
    needs = "" if is_serve_available() else "pip install 'transformers[serving]'"
    verdict.note("what it needs is installed", True if not needs else None, needs)
    return verdict


def check_continuous_batching(model: PreTrainedModel, place: str) -> Verdict:
    """Continues prompts by `generate_batch` and by `generate`, and compares."""
    command = "model.generate_batch(token_ids) in Python"
    verdict = Verdict("continuous batching", command)
    if not _note_language_model(verdict, model):
        return verdict
    own: Any = model
    size, what = model.config.vocab_size, "generate_batch() continues as generate() does"
    prompts = [[(7 * place + length) % size for place in range(length)] for length in PROMPTS]
    settings = GenerationConfig(max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0)
    pages = ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=64, page_size=16)
    try:
        outputs = own.generate_batch(prompts, generation_config=settings, continuous_batching_config=pages)
    except (ValueError, RuntimeError, TypeError, AttributeError) as error:
        verdict.note(what, False, str(error).splitlines()[0])
        return verdict
    errors = [output.error for output in outputs.values() if output.error]
    found = [output.generated_tokens for output in outputs.values()]
    expected = []
    for prompt in prompts:
        ids = torch.tensor([prompt], device=model.device)
        expected.append(own.generate(input_ids=ids, generation_config=settings)[0, len(prompt) :].tolist())
    is_same = not errors and len(found) == len(prompts) and sorted(found) == sorted(expected)
    verdict.note(what, is_same, errors[0].splitlines()[0] if errors else "" if is_same else "other tokens")
    return verdict


def _way_out(model: PreTrainedModel, place: str, name: str) -> str:
    """What to do about a class that transformers has not."""
    if hasattr(transformers, name):
        return ""
    for architecture in (LLAMA, GPT2):
        with contextlib.suppress(InputError, ValueError):
            architecture.config_to_theirs(model.config)
            return f"paperformer convert {place} OUTPUT --to {architecture.theirs.name}, and serve OUTPUT"
    return f"it has no {name}, and neither Llama nor GPT-2 can express it"


def _note_language_model(verdict: Verdict, model: PreTrainedModel) -> bool:
    is_one = model.can_generate() and not model.config.is_encoder_decoder
    return verdict.note("a language model", is_one, "" if is_one else f"it is a {model.config.model_type}")
