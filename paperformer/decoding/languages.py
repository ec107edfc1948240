"""Which languages a model of many translates between: M2M100, NLLB, mBART and their kind, of transformers.

Their tokenizers mark the source with its language, and what they write begins with the mark of the target's. Models of
ours have tags instead, which are text (`--prefix '<2de>'`).
"""

import re
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..training.console.input_error import InputError
from ..training.console.suggestions import suggest

_CODE = re.compile("[a-z]{2,3}_[A-Za-z]{2,4}")
"""de_DE of mBART, deu_Latn of NLLB."""


def language_marks(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The languages between which a model translates, by their codes, and the tokens that mark them; none of others."""
    untyped: Any = tokenizer
    if not hasattr(untyped, "src_lang"):
        return {}
    named = getattr(untyped, "lang_code_to_id", None)
    if named is None:
        named = {token: place for token, place in untyped.get_added_vocab().items() if _CODE.fullmatch(token)}
    return {code: place for code, place in named.items() if place != untyped.unk_token_id}


def choose_languages(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, src_lang: str, tgt_lang: str) -> None:
    """Has a model translate from one language into another.

    Args:
        model: whose settings of generation are changed.
        tokenizer: of its sources and of what it writes.
        src_lang, tgt_lang: codes; empty where nothing is said, which will do for a model that translates into one
            language by its own settings (`forced_bos_token_id`).

    Raises:
        InputError: if a language has to be said, or cannot be.
    """
    untyped: Any = tokenizer
    settings: Any = model.generation_config
    marks = language_marks(tokenizer)
    if not marks:
        if src_lang or tgt_lang:
            raise InputError(
                "the model has no languages to choose from; leave --src_lang and --tgt_lang out (a model with tags is "
                "told by --prefix '<2de>')"
            )
        return
    for option, code in (("src_lang", src_lang), ("tgt_lang", tgt_lang)):
        if code and code not in marks:
            hint = suggest(code, sorted(marks), f"they are {', '.join(sorted(marks))}")
            raise InputError(f"--{option} is {code}, which is none of the model's {len(marks)} languages; {hint}")
    if tgt_lang:
        settings.forced_bos_token_id = marks[tgt_lang]
        untyped.tgt_lang = tgt_lang
    elif settings.forced_bos_token_id is None:
        codes = sorted(marks)
        shown = ", ".join(codes[:8]) + (", ..." if len(codes) > 8 else "")
        raise InputError(
            f"the model translates into {len(marks)} languages; say which: --src_lang and --tgt_lang ({shown})"
        )
    if src_lang:
        untyped.src_lang = src_lang
