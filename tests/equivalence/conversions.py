"""What every proof of a conversion checks beside logits, loss and gradients: the way there and back, and generation.

The translation of weights that these proofs hand to `comparison.compare` is the one that `paperformer convert` uses.
"""

import torch
from transformers import PreTrainedModel

from paperformer.conversion.architecture import Architecture, Side

from .batches import Batch
from .comparison import Translation


def ours_for(
    architecture: Architecture, theirs: PreTrainedModel, attention: str
) -> tuple[PreTrainedModel, Translation]:
    """Our model of the configuration that theirs is converted to, its weights not yet theirs, and the translation."""
    config, lost = architecture.config_to_ours(theirs.config)
    assert not lost
    architecture.read_weights(config, theirs.state_dict())
    config._attn_implementation = attention
    ours = architecture.ours.model(config).to(theirs.dtype)
    return ours, lambda weights: architecture.weights_to_ours(config, weights)


def check_there_and_back(architecture: Architecture, theirs: PreTrainedModel) -> None:
    """Weights, bit for bit, configuration and generation settings, from theirs to ours and back, and once more."""
    ours = architecture.model_to_ours(theirs)
    back = architecture.model_to_theirs(ours)
    assert_identical(architecture.theirs, back, theirs)
    assert_identical(architecture.ours, architecture.model_to_ours(back), ours)


def assert_identical(side: Side, first: PreTrainedModel, second: PreTrainedModel) -> None:
    """Both are the same model: weights bit for bit, configuration, generation settings."""
    assert first.state_dict().keys() == second.state_dict().keys()
    assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())
    assert side.values(first.config) == side.values(second.config)
    if first.can_generate():
        assert first.generation_config.to_dict() == second.generation_config.to_dict()


def check_generation(architecture: Architecture, theirs: PreTrainedModel, batch: Batch) -> None:
    """The converted model, and the one converted back, generate the same tokens, greedily and with a beam.

    Random models soon repeat one token for ever; here no pair of tokens may come twice.
    """
    ours = architecture.model_to_ours(theirs)
    back = architecture.model_to_theirs(ours)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    settings = {"max_new_tokens": 12, "do_sample": False, "no_repeat_ngram_size": 2, "eos_token_id": None}
    for num_beams in (1, 3):
        expected = theirs.generate(**inputs, **settings, num_beams=num_beams)
        for model in (ours, back):
            assert torch.equal(model.generate(**inputs, **settings, num_beams=num_beams), expected)
