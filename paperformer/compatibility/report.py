"""All engines for one model."""

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .findings import Verdict
from .transformers_serving import check_continuous_batching, check_serve
from .vllm import check_vllm


def check_engines(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, place: str, *, trust_remote_code: bool = False
) -> list[Verdict]:
    """What each engine can do with a model, the one that comes with paperformer first.

    Args:
        model: that has been loaded.
        tokenizer: its own.
        place: where it was loaded from.
        trust_remote_code: whether Python code of the folder may run.
    """
    own = Verdict("paperformer serve", f"paperformer serve {place}")
    own.note("it loads, with all of its weights", True)
    others = [
        check_vllm(model, place, trust_remote_code=trust_remote_code),
        check_serve(model, place),
        check_continuous_batching(model, place),
    ]
    mark = tokenizer.bos_token_id
    if model.can_generate() and mark is not None and tokenizer("a").input_ids[:1] != [mark]:
        for verdict in others[:2]:
            if verdict.is_able:
                verdict.note(
                    "prompts begin as texts began in training",
                    None,
                    f"the tokenizer puts no {tokenizer.bos_token} before them; vLLM takes prompts as tokens too, with "
                    f"{mark} as the first",
                )
    return [own, *others]
