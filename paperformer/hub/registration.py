"""What `import paperformer` does: transformers' Auto* classes and pipelines get to know its models."""

import transformers
from transformers import AutoConfig, AutoModelForSeq2SeqLM
from transformers.pipelines import PIPELINE_REGISTRY

from ..configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ..modeling.families import FAMILIES
from ..modeling.pretrained import PaperformerPreTrainedModel
from ..pipeline_translation import TranslationPipeline
from .remote_code import write_remote_code


def register_with_transformers() -> None:
    """Makes transformers' Auto* classes, its pipelines and `save_pretrained` know paperformer's classes.

    Run by `import paperformer`; running it again changes nothing.
    """
    for family in FAMILIES.values():
        AutoConfig.register(family.config.model_type, family.config, exist_ok=True)
        for auto_class, model_class in family.auto_classes.items():
            getattr(transformers, auto_class).register(family.config, model_class, exist_ok=True)
    PaperformerPreTrainedModel.finish_saved_folder = write_remote_code

    # transformers has no task "translation" any more, and refuses the tasks that it removed before looking at
    # those that were registered.
    getattr(transformers.pipelines, "REMOVED_TASKS", {}).pop("translation", None)
    if "translation" not in PIPELINE_REGISTRY.supported_tasks:
        PIPELINE_REGISTRY.register_pipeline(
            "translation", TranslationPipeline, pt_model=AutoModelForSeq2SeqLM, type="text"
        )
    # A folder's `custom_pipelines` is for those without paperformer. Here it would make
    # pipeline("translation") ask for `trust_remote_code=True`, to run a copy of what is installed; so
    # configurations do not take it up.
    custom_pipelines = property(lambda config: {}, lambda config, value: None)
    setattr(PaperformerSeq2SeqConfig, "custom_pipelines", custom_pipelines)  # noqa: B010  # mypy knows no such field
