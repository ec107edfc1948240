"""What may be asked, and messages for what may not."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..training.console.suggestions import suggest

MOST_TEXTS = 1024
"""In a request."""


def _check_characters(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"there is half a character at {error.start + 1}, a surrogate without the other"
            ) from error
    return text


AnyText = Annotated[str, AfterValidator(_check_characters)]
Text = Annotated[AnyText, Field(min_length=1)]


class _Request(BaseModel):
    # As JSON has it: "3" is no number.
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class TranslationRequest(_Request):
    """Texts to translate."""

    text: AnyText | Annotated[list[AnyText], Field(min_length=1, max_length=MOST_TEXTS)]
    """One, or several. What is longer than the model takes is translated in pieces."""

    prefix: AnyText | None = None
    """Put before every text, and before every piece: a language tag, or what T5 is told to do."""

    src_lang: AnyText | None = None
    """Of a model of many languages, the code of the one that is translated."""

    tgt_lang: AnyText | None = None
    """And of the one that it is translated into."""

    num_beams: Annotated[int, Field(ge=1, le=32)] | None = None
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = None

    num_return_sequences: Annotated[int, Field(ge=1, le=32)] = 1
    """How many translations of each text, the best first."""

    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    """Longest translation of a text or a piece."""

    scores: bool = False
    """Whether translations come with their log-probabilities; several of a text always do."""

    stream: bool = False
    """Whether each text is answered when it is finished, as an event."""


class MaskRequest(_Request):
    """A text with masks to be filled in, or several."""

    text: Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]
    top_k: Annotated[int, Field(ge=1, le=100)] = 5


class StreamOptions(_Request):
    """What else a stream tells."""

    include_usage: bool = False
    include_obfuscation: bool = False
    """Known, and without effect."""


class CompletionRequest(_Request):
    """Prompts to continue, in OpenAI's form."""

    model: str | None = None
    prompt: (
        AnyText
        | Annotated[list[AnyText], Field(min_length=1, max_length=MOST_TEXTS)]
        | Annotated[list[int], Field(min_length=1)]
        | Annotated[list[Annotated[list[int], Field(min_length=1)]], Field(min_length=1, max_length=MOST_TEXTS)]
    )
    max_tokens: Annotated[int, Field(ge=1)] | None = 16
    temperature: Annotated[float, Field(ge=0, le=100)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    n: Annotated[int, Field(ge=1, le=128)] | None = 1
    stop: Text | Annotated[list[Text], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    """Known, and without effect."""

    # OpenAI's others: taken where they ask for nothing.
    best_of: int | None = None
    suffix: str | None = None
    frequency_penalty: float | None = 0.0
    presence_penalty: float | None = 0.0
    logit_bias: dict[str, float] | None = None

    def unsupported(self) -> str | None:
        """The name of an option that is given, and that this server has not."""
        given = {
            "best_of": self.best_of not in (None, self.n or 1),
            "suffix": bool(self.suffix),
            "frequency_penalty": bool(self.frequency_penalty),
            "presence_penalty": bool(self.presence_penalty),
            "logit_bias": bool(self.logit_bias),
        }
        return next((name for name, is_given in given.items() if is_given), None)


REQUESTS: dict[str, type[_Request]] = {
    "/translate": TranslationRequest,
    "/fill-mask": MaskRequest,
    "/v1/completions": CompletionRequest,
}


def explain(errors: Sequence[Any], route: str) -> tuple[str, str | None]:
    """What is wrong with a request, and the name of the field that it is in.

    Args:
        errors: what pydantic says.
        route: where the request was sent.
    """
    first = errors[0]
    place = [str(part) for part in first["loc"] if part != "body"]
    field = place[0] if place else None
    known = REQUESTS[route].model_fields if route in REQUESTS else {}
    if first["type"] == "json_invalid":
        return f"the body is no JSON: {first.get('ctx', {}).get('error', 'it cannot be read')}", None
    if field is None:
        return "the body must be a JSON object, sent with the header 'Content-Type: application/json'", None
    if first["type"] == "extra_forbidden" and len(place) == 1:
        return f"'{field}' is no field; {suggest(field, known, 'there are ' + ', '.join(known))}", field
    if first["type"] == "missing":
        return f"'{field}' is missing", field
    # A field that may be of several types has an error for each, with the type's name in its place.
    own = [error for error in errors if field in map(str, error["loc"])]
    reasons = dict.fromkeys(error["msg"].replace("Input should be", "must be").lower() for error in own)
    return f"'{field}' is not as it should be: {'; or '.join(reasons)}", field
