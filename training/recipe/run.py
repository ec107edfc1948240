"""What a run is called and where it goes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from .checks import check_at_least, check_positive


@dataclass(kw_only=True)
class RunOptions:
    """What to call the run, where it goes, and what happens to its result."""

    name: str
    """Name of the run, which is also its folder's."""

    objective: str | None = None
    """What is trained: seq2seq, lm, encoder or denoising; `paperformer train` must say the same."""

    output_dir: str = "runs"
    """Folder of all runs; this one is written to OUTPUT_DIR/NAME."""

    seed: int = 1
    """Seed of the initial weights, of the order of the data and of dropout."""

    init_from: str | None = None
    """Begin with the weights, the configuration and the tokenizer of this model, with a fresh optimizer: a run's or a
    model's folder, or a name on the Hub. Dropout and label smoothing may be others than the model's."""

    resume: bool = False
    """Go on from the newest checkpoint of a run of the same name that was interrupted; if it was to replace another,
    with the new one."""

    overwrite: bool = False
    """Replace an existing run of the same name. It is deleted when the new one has been validated once; if that fails
    or is interrupted before, the old one is in its place again."""

    license: str | None = None
    """Licence of the trained model, as an SPDX identifier in lower case, for its card."""

    push_to_hub: str | None = None
    """Upload the evaluated model to this Hub repository (for example USER/NAME) at the end."""

    trackers: list[Literal["tensorboard", "trackio"]] = field(default_factory=list)
    """Where to send figures besides metrics.jsonl: '[tensorboard,trackio]'."""

    device_watts: float | None = None
    """Power of one device in watts, for an estimate of the energy used where it cannot be measured."""

    def __post_init__(self) -> None:
        if self.name in ("", ".", "..") or Path(self.name).name != self.name:
            raise ValueError(f"name is '{self.name}'; it must be the plain name of a folder, without slashes")
        check_at_least(self, 0, "seed")
        check_positive(self, "device_watts")
        if self.resume and self.overwrite:
            raise ValueError("resume and overwrite are both true; give one of them")
        if self.push_to_hub is not None:
            try:
                validate_repo_id(self.push_to_hub)
            except HFValidationError as error:
                raise ValueError(f"push_to_hub is '{self.push_to_hub}'; it must be USER/NAME: {error}") from error
