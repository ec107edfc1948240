"""What `import paperformer` does: transformers' Auto* classes and pipelines get to know its models when they are there.

transformers knows its own models by tables of names, and imports a model when it is asked for. Our names go into the
same tables, as soon as the module that holds them has been imported: so `import paperformer` waits for nothing, and
nothing of ours is imported before it is wanted, least of all in the middle of an import that it needs itself.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PACKAGE = __name__.partition(".")[0]

MODELS = {
    "paperformer-seq2seq": (
        "PaperformerSeq2SeqConfig",
        {
            "MODEL_MAPPING_NAMES": "PaperformerSeq2SeqModel",
            "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": "PaperformerForConditionalGeneration",
        },
    ),
    "paperformer-lm": (
        "PaperformerLMConfig",
        {
            "MODEL_MAPPING_NAMES": "PaperformerLMModel",
            "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": "PaperformerForCausalLM",
        },
    ),
    "paperformer-encoder": (
        "PaperformerEncoderConfig",
        {
            "MODEL_MAPPING_NAMES": "PaperformerEncoderModel",
            "MODEL_FOR_MASKED_LM_MAPPING_NAMES": "PaperformerForMaskedLM",
        },
    ),
}
"""`model_type` -> its configuration, and its model in each of transformers' tables: the names of what is in
`modeling/families.py`, which imports it all."""


def register_with_transformers() -> None:
    """Makes transformers' Auto* classes, its pipelines and `save_pretrained` know paperformer's classes.

    Run by `import paperformer`; running it again changes nothing.
    """
    if any(isinstance(finder, _ImportWatcher) for finder in sys.meta_path):
        return
    there = [name for name in _AFTER_IMPORT if name in sys.modules]
    sys.meta_path.insert(0, _ImportWatcher())
    for name in there:
        _AFTER_IMPORT[name](sys.modules[name])
    if "transformers.models.auto.modeling_auto" in there:
        _register_classes()  # its tables have been read


class _ImportWatcher(MetaPathFinder):
    """Leaves imports as they are, and does something after some of them."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """What the other finders find."""
        if name not in _AFTER_IMPORT:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                _AFTER_IMPORT[name](module)

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


def _name_configurations(configuration_auto: ModuleType) -> None:
    for model_type, (configuration, _) in MODELS.items():
        configuration_auto.CONFIG_MAPPING_NAMES[model_type] = configuration
        # Where transformers looks for the classes of a table. Ours are all to be had from the package.
        sys.modules[f"transformers.models.{model_type.replace('-', '_')}"] = sys.modules[PACKAGE]


def _name_models(modeling_auto: ModuleType) -> None:
    for model_type, (_, models) in MODELS.items():
        for table, model in models.items():
            getattr(modeling_auto, table)[model_type] = model


def _register_classes() -> None:
    """The same for Auto* classes that were there before paperformer was imported, with the classes themselves."""
    import transformers

    from ..modeling.families import FAMILIES

    for family in FAMILIES.values():
        for auto_class, model_class in family.auto_classes.items():
            getattr(transformers, auto_class).register(family.config, model_class, exist_ok=True)


def _import_pipeline(_: ModuleType) -> None:
    importlib.import_module(f"{PACKAGE}.pipeline_translation")  # which may be why `_` was imported


def _register_pipeline(pipeline_translation: ModuleType) -> None:
    pipeline_translation.register_pipeline()


def _complete_saved_folders(pretrained: ModuleType) -> None:
    def finish(model: "PreTrainedModel", folder: "str | PathLike[str]") -> None:
        from .remote_code import write_remote_code

        write_remote_code(model, folder)

    pretrained.PaperformerPreTrainedModel.finish_saved_folder = finish


def _ignore_custom_pipelines(configuration_seq2seq: ModuleType) -> None:
    # A folder's `custom_pipelines` is for those without paperformer. Here it would make
    # pipeline("translation") ask for `trust_remote_code=True`, to run a copy of what is installed; so
    # configurations do not take it up.
    ignored: Any = property(lambda config: {}, lambda config, value: None)
    configuration_seq2seq.PaperformerSeq2SeqConfig.custom_pipelines = ignored


_AFTER_IMPORT: dict[str, Callable[[ModuleType], None]] = {
    "transformers.models.auto.configuration_auto": _name_configurations,
    "transformers.models.auto.modeling_auto": _name_models,
    "transformers.pipelines": _import_pipeline,
    f"{PACKAGE}.pipeline_translation": _register_pipeline,
    f"{PACKAGE}.modeling.pretrained": _complete_saved_folders,
    f"{PACKAGE}.configuration.configuration_seq2seq": _ignore_custom_pipelines,
}
"""What to do when a module has been imported."""
