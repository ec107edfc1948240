"""export.json, which lies in every export: what it was made of, how it decodes, and what the comparison found."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from transformers import PreTrainedConfig

from ..training.console.input_error import InputError

EXPORT_FILE = "export.json"


@dataclass(frozen=True, kw_only=True)
class ExportFile:
    """The facts of an export."""

    format: str
    quantization: str
    family: str
    """seq2seq, lm or encoder."""
    model: str
    """Where the model lay."""
    end_ids: list[int]
    """Tokens that end a text."""
    start_id: int | None
    """The token that a translation, or a text, begins with."""
    pad_id: int
    vocab_size: int
    longest: int
    """Tokens that the model was made for."""
    compared: str = "last_hidden_state"
    """What of an encoder was compared: last_hidden_state or logits."""
    has_target_tokenizer: bool = False
    num_beams: int | None = None
    """The model's own beam size, and exponent of the length; None if it says nothing."""
    length_penalty: float | None = None
    comparison: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, config: PreTrainedConfig, **facts: Any) -> Self:
        """The facts that a configuration has; `facts` are the others."""
        values: Any = config
        ends = values.eos_token_id
        start = values.decoder_start_token_id if values.is_encoder_decoder else values.bos_token_id
        return cls(
            family=values.model_type.removeprefix("paperformer-"),
            end_ids=ends if isinstance(ends, list) else [] if ends is None else [ends],
            start_id=start,
            pad_id=values.pad_token_id or 0,
            vocab_size=values.vocab_size,
            longest=values.max_position_embeddings,
            **facts,
        )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Those of a folder.

        Raises:
            InputError: if there are none, or they cannot be understood.
        """
        path = folder / EXPORT_FILE
        try:
            return cls(**json.loads(path.read_text("utf-8")))
        except FileNotFoundError as error:
            raise InputError(f"{folder} is no export: it has no {EXPORT_FILE}; paperformer export makes one") from error
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error

    def write(self, folder: Path) -> None:
        """Puts them into a folder."""
        (folder / EXPORT_FILE).write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n", "utf-8")
