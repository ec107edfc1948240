"""`import paperformer`: its names, and what it costs."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paperformer
from paperformer.hub.registration import MODELS
from paperformer.modeling.families import FAMILIES


def test_every_public_name_is_there() -> None:
    for name in paperformer.__all__:
        assert getattr(paperformer, name) is not None
    assert set(paperformer.__all__) <= set(dir(paperformer))
    assert set(paperformer.__all__) == paperformer._MODULES.keys() | {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'paperformer' has no attribute 'PaperformerModel'"):
        paperformer.PaperformerModel  # noqa: B018


def test_the_names_of_models_are_those_of_the_families() -> None:
    tables = {
        "AutoModel": "MODEL_MAPPING_NAMES",
        "AutoModelForSeq2SeqLM": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        "AutoModelForCausalLM": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    }
    expected = {}
    for family in FAMILIES.values():
        models = {tables[auto]: model.__name__ for auto, model in family.auto_classes.items()}
        expected[family.config.model_type] = (family.config.__name__, models)
    assert expected == MODELS


EARLY = """
import json, sys
import paperformer
print({"torch", "transformers"} & set(sys.modules), paperformer.__version__)

# In the middle of this import, which our models need as well, transformers imports its Auto* classes.
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
print([name for name in sys.modules if name.startswith("paperformer.modeling")])

config = AutoConfig.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
print(type(config) is paperformer.PaperformerLMConfig, type(model) is paperformer.PaperformerForCausalLM)
print(type(AutoModel.from_config(config)) is paperformer.PaperformerLMModel, config in [config])
print(type(AutoTokenizer.from_pretrained(sys.argv[1])).__name__)
print(MODEL_FOR_CAUSAL_LM_MAPPING[paperformer.PaperformerLMConfig].__name__)
model.save_pretrained(sys.argv[2])
print("auto_map" in json.load(open(sys.argv[2] + "/config.json")))

# What trains takes seconds to import, which whoever uses a model need not wait for.
paperformer.generate(sys.argv[1], "A", 1)
print([name for name in ("paperformer.training.run", "paperformer.training.engine", "datasets") if name in sys.modules])
"""

LATE = """
import sys
from transformers import AutoConfig, AutoModelForSeq2SeqLM
from transformers.pipelines import PIPELINE_REGISTRY
import paperformer
paperformer.hub.registration.register_with_transformers()
config = AutoConfig.for_model("paperformer-seq2seq", vocab_size=8, hidden_size=8, num_attention_heads=2)
print(type(AutoModelForSeq2SeqLM.from_config(config)) is paperformer.PaperformerForConditionalGeneration)
print("translation" in PIPELINE_REGISTRY.supported_tasks, config.custom_pipelines)
"""


def shown(*arguments: object) -> list[str]:
    """What a script writes to standard output, line by line."""
    command = [sys.executable, "-c", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout.splitlines()


def test_importing_waits_for_nothing_and_auto_classes_know_the_models_nonetheless(lm: Any, tmp_path: Path) -> None:
    assert shown(EARLY, lm.folder, tmp_path) == [
        f"set() {paperformer.__version__}",
        "[]",
        "True True",
        "True True",
        "TokenizersBackend",
        "PaperformerForCausalLM",
        "True",
        "[]",
    ]


@pytest.mark.proof
def test_auto_classes_that_were_there_before_know_the_models_as_well() -> None:
    assert shown(LATE) == ["True", "True {}"]
