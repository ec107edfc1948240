"""Servers of tiny models, in this process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from paperformer import PaperformerEncoderConfig, PaperformerForMaskedLM, train_tokenizer
from paperformer.serving.application import make_application
from paperformer.serving.engines.loading import load_engine
from paperformer.serving.engines.text import TextEngine
from paperformer.serving.engines.translation import TranslationEngine, TranslationOptions


@pytest.fixture(scope="session")
def translation_engine(seq2seq: Any) -> Any:
    return load_engine(str(seq2seq.folder))


@pytest.fixture(scope="session")
def text_engine(lm: Any) -> Any:
    return load_engine(str(lm.folder))


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(4)
    texts = ["A dog runs on the beach.", "Two men talk."] * 3
    tokenizer = train_tokenizer(texts, 280, append_eos=True, mask_token=True, find_special_tokens=True)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64}
    config = PaperformerEncoderConfig(num_hidden_layers=1, vocab_size=len(tokenizer), **size)
    model = PaperformerForMaskedLM(config).eval()
    folder = tmp_path_factory.mktemp("runs") / "tiny-encoder"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def translator(translation_engine: TranslationEngine) -> Iterator[TestClient]:
    with TestClient(
        make_application(translation_engine, "tiny-en-de", defaults=TranslationOptions(num_beams=3))
    ) as client:
        yield client


@pytest.fixture(scope="module")
def writer(text_engine: TextEngine) -> Iterator[TestClient]:
    with TestClient(make_application(text_engine, "tiny.lm")) as client:
        yield client
