"""The time of a step of decoding, beside transformers' own models, CTranslate2, and the speed of memory.

The models have the same sizes, random weights, and no end-of-sequence token, so that each decodes as many steps. They
are measured turn by turn in one process, in one thread, with float32 unless a row says otherwise; the first round is
not counted. A figure is the median of the processor's time of `generate()` over its steps, with what the encoder or
the prompt takes; of the processor, because others use this machine too, though they slow its memory down all the same.
The bound is the time for reading each weight of a step once, at the speed of a sum over 400 MB in the same rounds.
"""

import argparse
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel, PreTrainedModel

from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from paperformer.modeling.modeling_lm import PaperformerForCausalLM
from paperformer.modeling.modeling_seq2seq import PaperformerForConditionalGeneration
from paperformer.training.engine.devices.hardware import describe_hardware

RESULTS = Path(__file__).parent / "results" / "generation.md"
PROMPT = 16  # tokens, of a source or a prompt
PEER = "transformers"


@dataclass(frozen=True)
class Case:
    """What is decoded at once."""

    family: str
    batch: int
    beams: int = 1

    def __str__(self) -> str:
        size = (
            "translation, 6+6 layers, 512 wide" if self.family == "seq2seq" else "language model, 12 layers, 768 wide"
        )
        return f"{size}: {self.batch} × {f'beam {self.beams}' if self.beams > 1 else 'greedy'}"


CASES = [
    Case("seq2seq", 1),
    Case("seq2seq", 16),
    Case("seq2seq", 1, 4),
    Case("seq2seq", 16, 4),
    Case("lm", 1),
    Case("lm", 8),
]


def build(family: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    """transformers' model and ours, of one size: the paper's base model, or GPT-2."""
    torch.manual_seed(0)
    if family == "lm":
        config = GPT2Config(bos_token_id=0, eos_token_id=0)
        own = PaperformerLMConfig.from_preset("gpt2", bos_token_id=0, eos_token_id=1, pad_token_id=0)
        return GPT2LMHeadModel(config), PaperformerForCausalLM(own)
    size = PaperformerSeq2SeqConfig()
    marian = MarianConfig(
        vocab_size=size.vocab_size,
        d_model=512,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        activation_function="relu",
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
    )
    return MarianMTModel(marian), PaperformerForConditionalGeneration(size)


def generator(model: Any, case: Case, steps: int) -> Callable[[], Any]:
    """`generate()` of so many steps."""
    settings = model.eval().generation_config
    settings.eos_token_id, settings.forced_eos_token_id, settings.pad_token_id = None, None, 0
    ids = torch.randint(3, model.config.vocab_size, (case.batch, PROMPT), generator=torch.Generator().manual_seed(1))
    return lambda: model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        num_beams=case.beams,
        do_sample=False,
        max_new_tokens=steps,
        min_new_tokens=None,
    )


def ctranslate2_generator(model: Any, case: Case, steps: int, quantization: str, folder: Path) -> Callable[[], Any]:
    """The same by CTranslate2, which has the end-of-sequence token forbidden."""
    import ctranslate2
    from ctranslate2.converters import Converter

    from paperformer.export.formats.ctranslate2_spec import build_spec

    tokens = [f"t{index}" for index in range(model.config.vocab_size)]

    class RandomWeightsConverter(Converter):
        def _load(self) -> Any:
            spec = build_spec(model)
            spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = "t2", "t0", "t1"
            if case.family == "lm":
                spec.register_vocabulary(tokens)
                return spec
            spec.register_source_vocabulary(tokens)
            spec.register_target_vocabulary(tokens)
            spec.config.decoder_start_token = "t0"
            spec.config.add_source_bos = spec.config.add_source_eos = False
            return spec

    place = str(folder / f"{case.family}-{quantization}")
    if not Path(place).exists():
        RandomWeightsConverter().convert(place, quantization=quantization)
    options: dict[str, Any] = {"inter_threads": 1, "intra_threads": 1, "compute_type": quantization}
    ids = torch.randint(3, len(tokens), (case.batch, PROMPT), generator=torch.Generator().manual_seed(1))
    rows = [[tokens[index] for index in row] for row in ids.tolist()]
    lengths = {"beam_size": case.beams, "suppress_sequences": [["t1"]]}
    if case.family == "lm":
        engine = ctranslate2.Generator(place, **options)
        longest = {"min_length": steps, "max_length": steps, "include_prompt_in_result": False}
        return lambda: engine.generate_batch(rows, **lengths, **longest)
    translator = ctranslate2.Translator(place, **options)
    longest = {"min_decoding_length": steps, "max_decoding_length": steps}
    return lambda: translator.translate_batch(rows, **lengths, **longest)


def weights_of_a_step(model: Any) -> int:
    """Bytes of the weights that a step multiplies with, which makes no keys and values of the source."""
    body = model.model.decoder if model.config.is_encoder_decoder else model.model
    read = [weight for name, weight in body.named_parameters() if "embed_tokens" not in name and ".table" not in name]
    sources = [w for n, w in body.named_parameters() if "cross_attn.k_proj" in n or "cross_attn.v_proj" in n]
    head = list(model.lm_head.parameters())
    return sum(w.nbytes for w in read + head) - sum(w.nbytes for w in sources)


def measure(case: Case, rounds: int, steps: int, folder: Path) -> list[str]:
    """The rows of one case."""
    peer, own = build(case.family)
    bytes_read = weights_of_a_step(own)
    ways = {f"{PEER} ({type(peer).__name__})": generator(peer, case, steps), "paperformer": generator(own, case, steps)}
    packed, bf16, int8 = (type(own)(own.config) for _ in range(3))
    for other in (packed, bf16, int8):
        other.load_state_dict(own.state_dict())
    ways["— with packed weights"] = generator(packed.pack_weights(), case, steps)  # type: ignore[operator]
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        ways["— with packed weights, bfloat16"] = generator(bf16.bfloat16().pack_weights(), case, steps)  # type: ignore[operator]
    if torch.cpu._is_vnni_supported():
        ways["— with packed weights, int8"] = generator(int8.pack_weights(torch.int8), case, steps)  # type: ignore[operator]
    if find_spec("ctranslate2") is not None:
        for kind in ("float32", "int8"):
            ways[f"CTranslate2, {kind}"] = ctranslate2_generator(own, case, steps, kind, folder)
    memory = torch.ones(100_000_000)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    bound: list[float] = []
    for round_number in range(rounds + 1):
        for name, run in ways.items():
            started = time.process_time()
            run()
            if round_number:
                taken[name].append((time.process_time() - started) / steps * 1e3)
        started = time.process_time()
        memory.sum()
        bound.append((time.process_time() - started) * bytes_read / memory.nbytes * 1e3)
    base = statistics.median(next(iter(taken.values())))
    floor = statistics.median(bound)
    rows = [
        f"| {name} | {statistics.median(each):.1f} ({min(each):.1f} to {max(each):.1f}) | "
        f"{base / statistics.median(each):.2f} | {statistics.median(each) / floor:.2f} |"
        for name, each in taken.items()
    ]
    head = f"## {case}\n\nReading {bytes_read / 1e6:.0f} MB takes {floor:.1f} ms.\n"
    return [
        head,
        "| | ms a step: median (lowest to highest) | speed | times the bound |",
        "|---|---:|---:|---:|",
        *rows,
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--cases", type=int, nargs="*", default=range(len(CASES)), help="which of them, from 0")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load_before, names = os.getloadavg()[0], ("paperformer", "torch", "transformers")
    lines = [
        "# Speed of generation",
        "",
        (__doc__ or "").strip(),
        "",
        f"- Command: `python benchmarks/generation.py {shlex.join(sys.argv[1:])}`",
        f"- Date: {datetime.now(UTC).date()}",
        f"- Hardware: {describe_hardware()}, one thread (load before: {load_before:.1f})",
        f"- Software: Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in names)}",
        f"- {options.steps} steps, after {PROMPT} tokens of source or prompt, {options.rounds} rounds",
        "",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for index in options.cases:
            rows = measure(CASES[index], options.rounds, options.steps, Path(folder))
            print("\n".join(rows), flush=True)
            lines += rows
            RESULTS.write_text("\n".join(lines), "utf-8")
    print(RESULTS)


if __name__ == "__main__":
    main()
