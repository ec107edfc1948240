"""The models that the page shows: loaded when they are first asked for, and used by one visitor at a time."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock

from ..api.given_models import place_of
from ..commands.loading import check_task, load_config, model_name
from ..decoding.translator import Translator
from ..serving.engines.engine import Task
from ..serving.engines.loading import load_engine
from ..serving.engines.masks import MaskedText
from ..serving.engines.torch_masks import Filling, TorchMasks
from ..serving.engines.torch_text import TorchText
from ..serving.engines.torch_translation import TorchTranslation
from ..shipped_models import shipped_models
from ..training.console.input_error import InputError

EXAMPLES = {"translation": "A dog runs on the beach.", "text-generation": "Once upon a time"}


@dataclass
class ShownModel:
    """A model of the page."""

    name: str
    """What it is called there."""

    place: str
    """A folder, or a name on the Hub."""

    task: str
    """As transformers calls it."""

    trust_remote_code: bool = False

    lock: RLock = field(default_factory=RLock)
    """Held by who uses it: neither a tokenizer nor how attention is computed is for two at a time."""

    @cached_property
    def engine(self) -> object:
        """The model and its tokenizer, loaded.

        Raises:
            InputError: if it cannot be loaded.
        """
        with self.lock:
            return load_engine(self.place, trust_remote_code=self.trust_remote_code)

    @property
    def translator(self) -> Translator:
        """Of a translation model."""
        engine = self.engine
        assert isinstance(engine, TorchTranslation)
        return Translator(engine.model, engine.tokenizer, engine.target_tokenizer)

    @property
    def writer(self) -> TorchText:
        """Of a language model."""
        assert isinstance(self.engine, TorchText)
        return self.engine

    @property
    def filler(self) -> TorchMasks:
        """Of a masked model."""
        assert isinstance(self.engine, TorchMasks)
        return self.engine

    @property
    def example(self) -> str:
        """A text that it can do something with."""
        shipped = shipped_models().get(self.name)
        if shipped is not None and str(shipped.folder) == self.place:
            return shipped.example
        if self.task == "fill-mask":
            return f"The dog {self.filler.mask} on the beach."
        return EXAMPLES[self.task]


def find_models(names: Sequence[str], *, trust_remote_code: bool = False) -> list[ShownModel]:
    """The models of these names, none of them loaded yet; those that come with the package, if there are no names.

    Raises:
        InputError: if one has no configuration that can be loaded.
    """
    found: dict[str, ShownModel] = {}
    for name in names or shipped_models():
        place = place_of(name)
        task = check_task(load_config(place, trust_remote_code=trust_remote_code), None, name)
        called, number = model_name(place), 2
        while called in found:
            called, number = f"{model_name(place)} ({number})", number + 1
        if all(model.place != place for model in found.values()):
            found[called] = ShownModel(called, place, task, trust_remote_code)
    return list(found.values())


def preload(models: Sequence[ShownModel]) -> None:
    """Loads models before anybody asks for them; of one that cannot be loaded it is said then."""
    for model in models:
        with suppress(InputError), model.lock:
            _ = model.engine


def fill_masks(engine: TorchMasks, text: str, top_k: int = 8) -> list[list[Filling]]:
    """What may stand at each mask of a text, the likeliest first.

    Raises:
        InputError: if there is no mask, or the text is longer than the model takes.
    """
    (ids,) = engine.encode([text])
    if not engine.count_masks(ids):
        raise InputError(f"there is no {engine.mask} in the text; write it where a word is to be filled in")
    if len(ids) > engine.longest:
        raise InputError(f"the text has {len(ids):,} tokens; the model takes {engine.longest:,}")
    found: list[list[list[Filling]]] = []
    engine.run([Task(MaskedText(tuple(ids), top_k), engine.task, len(ids), float("inf"), found.append, found.append)])
    return found[0]
