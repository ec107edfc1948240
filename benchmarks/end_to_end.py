"""Training end to end beside loops like those of transformers' examples, on real text.

    python benchmarks/end_to_end.py --multi30k FOLDER --shakespeare FILE

A run is one pass over the training text, with all that belongs to it: opening and batching the data, the model, each
step with its records, one validation of the loss and one checkpoint at the end. Ours is the training script of the
package with its default options. The peer is written after `run_translation_no_trainer.py` and `run_clm_no_trainer.py`
of transformers: their tokenisation by `datasets`, their data loaders, collators, optimizer, schedule and order of
things, with their defaults but for what has to be equal on both sides. Each run is a process of its own; the two sides
take turns.
"""

import argparse
import json
import logging
import math
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import DatasetDict, load_dataset
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    GPT2Config,
    MarianConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    default_data_collator,
    get_scheduler,
)

from paperformer.training import run as run_module
from paperformer.training.data.batches.token_budget import Batch
from paperformer.training.data.readers.sources import Source, pair_reader
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.tokenizers import padded_size
from paperformer.training.engine.devices.hardware import describe_hardware
from paperformer.training.engine.loop import FittedModel
from paperformer.training.tasks.language_modeling import LANGUAGE_MODELING
from paperformer.training.tasks.protocols import Task
from paperformer.training.tasks.translation import TRANSLATION

RESULTS = Path(__file__).parent / "results" / "end_to_end.md"
SIDES = ("peer", "paperformer")
LANGUAGES = ("en", "de")
CONTEXT, BLOCKS_PER_BATCH = 64, 12
LAYERS, HIDDEN, INNER, HEADS, DROPOUT = 4, 128, 512, 4, 0.1
LEARNING_RATE = 1e-3

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """What both sides are told about a workload."""

    workload: str
    folder: str
    """With the text of both sides, the tokenizer, the caches, and what runs write."""

    arguments: list[str]
    """Of our training script."""

    batch_size: int
    """Rows of a batch of the peer."""


@dataclass(frozen=True)
class Figures:
    """One run."""

    seconds: float
    """All but the start and the end of the process."""

    step_seconds: float
    """Of these, what the steps took, their batches and records included."""

    processor_seconds: float
    """What all threads together had of the processor in `seconds`; other work on the machine hardly changes it."""

    updates: int
    tokens: int
    """Target tokens that were predicted, without padding."""

    padding: float
    """Share of all positions of the batches."""

    parameters: int
    peak: int
    """Bytes that the process had in memory at most."""

    process_seconds: float = 0.0
    """Start and end of the process, imports included."""

    @property
    def speed(self) -> float:
        """Target tokens a second over the whole run."""
        return self.tokens / self.seconds

    @property
    def step_speed(self) -> float:
        """Target tokens a second while taking steps."""
        return self.tokens / self.step_seconds


# --- the two workloads ---


def our_arguments(workload: str, folder: Path, max_steps: int, *, has_tokenizer: bool) -> list[str]:
    """The command line of our training script."""
    options: dict[str, Any] = {
        "name": "run",
        "output_dir": folder / "runs",
        "overwrite": "true",
        "data.dataset": folder / "text",
        "data.test": "validation",  # is not scored
        "data.cache_dir": folder / "cache",
        "model.hidden_size": HIDDEN,
        "model.intermediate_size": INNER,
        "model.num_attention_heads": HEADS,
        "optimization.max_steps": max_steps,
        "optimization.learning_rate": LEARNING_RATE,
        "optimization.schedule": "linear",
        "optimization.warmup_steps": 0,
        "optimization.adam_beta2": 0.999,
        "optimization.adam_epsilon": 1e-8,
        "evaluation.every_steps": max_steps,
    }
    if workload == "translation":
        options |= {
            "data.source_language": LANGUAGES[0],
            "data.target_language": LANGUAGES[1],
            "tokenizer.vocab_size": 8000,
            "model.encoder_layers": LAYERS,
            "model.decoder_layers": LAYERS,
            "model.dropout": DROPOUT,
            "model.label_smoothing": 0.0,  # the peer's script has none
            "optimization.tokens_per_batch": 4096,
        }
    else:
        options |= {
            "data.context_length": CONTEXT,
            "tokenizer.algorithm": "characters",
            "tokenizer.vocab_size": 1000,  # more than there are
            "model.num_hidden_layers": LAYERS,
            "model.hidden_act": "gelu_new",
            "model.gated_mlp": "false",
            "model.use_bias": "true",
            "model.norm_type": "layernorm",
            "model.position_embedding_type": "learned",
            "model.max_position_embeddings": CONTEXT,
            "optimization.tokens_per_batch": BLOCKS_PER_BATCH * CONTEXT,
        }
    if has_tokenizer:
        options["tokenizer.path"] = folder / "tokenizer"
    return [f"--{name}={value}" for name, value in options.items()]


def peer_config(workload: str, vocab_size: int, tokenizer: PreTrainedTokenizerBase) -> MarianConfig | GPT2Config:
    """The same architecture as ours."""
    if workload == "translation":
        return MarianConfig(
            vocab_size=vocab_size,
            d_model=HIDDEN,
            encoder_layers=LAYERS,
            decoder_layers=LAYERS,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=INNER,
            decoder_ffn_dim=INNER,
            activation_function="relu",
            dropout=DROPOUT,
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.bos_token_id,
            forced_eos_token_id=None,
        )
    return GPT2Config(
        vocab_size=vocab_size,
        n_positions=CONTEXT,
        n_embd=HIDDEN,
        n_layer=LAYERS,
        n_head=HEADS,
        n_inner=INNER,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )


def write_pairs(source: Path, folder: Path, share: float) -> None:
    """Writes the first pairs of Multi30k's training and validation split."""
    for name, split in (("train", "train"), ("val", "validation")):
        reader = pair_reader(Source(path=str(source / name)), *LANGUAGES)
        pairs = list(chain.from_iterable(zip(*c.to_pydict().values(), strict=True) for c in reader.chunks(BadLines())))
        kept = pairs[: math.ceil(share * len(pairs))]
        for language, side in zip(LANGUAGES, zip(*kept, strict=True), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in side), "utf-8")


def write_text(source: Path, folder: Path, share: float) -> None:
    """Writes the beginning of a text: nine tenths to train on, the rest to validate."""
    text = source.read_text("utf-8")
    text = text[: int(share * len(text))]
    cut = text.index("\n", int(0.9 * len(text))) + 1
    (folder / "train.txt").write_text(text[:cut], "utf-8")
    (folder / "validation.txt").write_text(text[cut:], "utf-8")


def prepare(workload: str, source: Path, folder: Path, share: float) -> Plan:
    """Writes the text, trains the tokenizer, and counts the batches of a pass."""
    text = folder / "text"
    text.mkdir()
    (write_pairs if workload == "translation" else write_text)(source, text, share)
    objective = TRANSLATION if workload == "translation" else LANGUAGE_MODELING
    recipe = objective.read_recipe(our_arguments(workload, folder, 1, has_tokenizer=False))
    splits = objective.open_splits(recipe)
    run_module.make_tokenizers(objective, recipe, splits).save(folder / "tokenizer")
    recipe = objective.read_recipe(our_arguments(workload, folder, 1, has_tokenizer=True))
    (batches,) = objective.make_task(
        recipe, splits, run_module.make_tokenizers(objective, recipe, splits)
    ).batches.pools(0, 0)
    batch_size = BLOCKS_PER_BATCH
    if workload == "translation":
        # What our cleaning leaves, for both; in as many batches.
        for split in ("train", "validation"):
            rows: Iterable[Mapping[str, str]] = getattr(splits, split).dataset
            pairs = [dict(zip(LANGUAGES, (row["source"], row["target"]), strict=True)) for row in rows]
            lines = [json.dumps({"translation": pair}, ensure_ascii=False) + "\n" for pair in pairs]
            (text / f"{split}.json").write_text("".join(lines), "utf-8")
        batch_size = math.ceil(len(splits.train.dataset) / len(batches))
    return Plan(workload, str(folder), our_arguments(workload, folder, len(batches), has_tokenizer=True), batch_size)


# --- one run, in a process of its own ---


def count(batches: Iterable[Batch], padding_id: int, *, is_translation: bool) -> tuple[int, float]:
    """Target tokens of batches, and the share of positions that are padding."""
    tokens = positions = real = 0
    for batch in batches:
        labels = batch["labels"] if is_translation else batch["labels"][:, 1:]
        tokens += int((labels != -100).sum())
        masks = [batch["input_ids"] != padding_id] + ([batch["labels"] != -100] if is_translation else [])
        positions += sum(mask.numel() for mask in masks)
        real += sum(int(mask.sum()) for mask in masks)
    return tokens, 1 - real / positions


class Clock:
    """Seconds since it was made: of the clock on the wall, and of the processor."""

    def __init__(self) -> None:
        self.started = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        wall, processor = self.started
        return time.perf_counter() - wall, time.process_time() - processor


def peak_memory() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run_paperformer(plan: Plan) -> Figures:
    """Our training script, up to its last checkpoint: test scores and the model's folder are left out."""
    result: list[Figures] = []
    is_translation = plan.workload == "translation"

    def finish(_objective: Any, _recipe: Any, _folder: Any, task: Task, fitted: FittedModel, *_: Any) -> None:
        (seconds, processor_seconds), peak = clock.read(), peak_memory()
        (items,) = task.batches.pools(0, 0)
        padding_id = fitted.model.config.pad_token_id
        tokens, padding = count(map(task.batches.collate, items), padding_id, is_translation=is_translation)
        progress, parameters = fitted.progress, fitted.model.num_parameters()
        result.append(
            Figures(seconds, progress.seconds, processor_seconds, progress.step, tokens, padding, parameters, peak)
        )

    run_module._finish = finish
    clock = Clock()
    run_module.main(TRANSLATION if is_translation else LANGUAGE_MODELING, plan.arguments)
    return result[0]


def translation_data(plan: Plan, tokenizer: PreTrainedTokenizerBase, accelerator: Accelerator) -> DatasetDict:
    """Sentence pairs as token ids, in the order of the file."""
    files = {split: f"{plan.folder}/text/{split}.json" for split in ("train", "validation")}
    raw = load_dataset("json", data_files=files)

    def encode(examples: dict[str, Any]) -> Any:
        sources, targets = ([pair[language] for pair in examples["translation"]] for language in LANGUAGES)
        encoded = tokenizer(sources, max_length=1024, truncation=True)
        encoded["labels"] = tokenizer(text_target=targets, max_length=128, truncation=True)["input_ids"]
        return encoded

    with accelerator.main_process_first():
        return raw.map(encode, batched=True, remove_columns=raw["train"].column_names, desc="Tokenising")


def text_data(plan: Plan, tokenizer: PreTrainedTokenizerBase, accelerator: Accelerator) -> DatasetDict:
    """The lines of a text as token ids, joined a thousand at a time and cut into blocks; rests are dropped."""
    files = {split: f"{plan.folder}/text/{split}.txt" for split in ("train", "validation")}
    raw = load_dataset("text", data_files=files, keep_linebreaks=True)

    def encode(examples: dict[str, Any]) -> Any:
        return tokenizer(examples["text"])

    def group(examples: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        joined = {name: list(chain.from_iterable(rows)) for name, rows in examples.items()}
        starts = range(0, len(joined["input_ids"]) - CONTEXT + 1, CONTEXT)
        blocks = {name: [ids[start : start + CONTEXT] for start in starts] for name, ids in joined.items()}
        return blocks | {"labels": blocks["input_ids"]}

    with accelerator.main_process_first():
        encoded = raw.map(encode, batched=True, remove_columns=raw["train"].column_names, desc="Tokenising")
        return encoded.map(group, batched=True, desc="Grouping")


def peer_optimizer(model: PreTrainedModel) -> torch.optim.Optimizer:
    """The AdamW of the examples: two groups of parameters, torch's default implementation."""
    without_decay = ("bias", "LayerNorm.weight", "layer_norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight")
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        (others if name.endswith(without_decay) else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": 0.0}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE)


def run_peer(plan: Plan) -> Figures:
    """A loop like those of transformers' examples: one epoch, an evaluation, a checkpoint."""
    is_translation = plan.workload == "translation"
    clock = Clock()
    accelerator = Accelerator()
    set_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(f"{plan.folder}/tokenizer", trust_remote_code=False)
    config = peer_config(plan.workload, padded_size(tokenizer, 8), tokenizer)
    automatic = AutoModelForSeq2SeqLM if is_translation else AutoModelForCausalLM
    model = automatic.from_config(config)
    data = (translation_data if is_translation else text_data)(plan, tokenizer, accelerator)
    train, validation = data["train"], data["validation"]

    collate: Callable[..., Any] = default_data_collator
    if is_translation:
        collate = DataCollatorForSeq2Seq(tokenizer, model=model, label_pad_token_id=-100)
    train_loader = DataLoader(train, shuffle=True, collate_fn=collate, batch_size=plan.batch_size)
    validation_loader = DataLoader(validation, collate_fn=collate, batch_size=plan.batch_size)
    optimizer = peer_optimizer(model)
    updates = len(train_loader)
    scheduler = get_scheduler("linear", optimizer=optimizer, num_warmup_steps=0, num_training_steps=updates)
    model, optimizer, train_loader, validation_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, validation_loader, scheduler
    )

    steps_started = time.perf_counter()
    total_loss = 0.0
    with tqdm(total=updates, disable=not accelerator.is_local_main_process) as bar:
        model.train()
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                total_loss += loss.detach().float()
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            bar.update(1)
    step_seconds = time.perf_counter() - steps_started

    model.eval()
    losses = []
    for batch in validation_loader:
        with torch.no_grad():
            loss = model(**batch).loss
        losses.append(accelerator.gather_for_metrics(loss.repeat(plan.batch_size)))
    logger.info("train loss %.3f, eval loss %.3f", float(total_loss) / updates, float(torch.cat(losses).mean()))
    accelerator.save_state(f"{plan.folder}/epoch_0")
    (seconds, processor_seconds), peak = clock.read(), peak_memory()
    tokens, padding = count(train_loader, tokenizer.pad_token_id, is_translation=is_translation)
    return Figures(seconds, step_seconds, processor_seconds, updates, tokens, padding, model.num_parameters(), peak)


def work(side: str, plan: Plan, threads: int) -> None:
    """One run; its figures are written into the plan's folder."""
    torch.set_num_threads(threads)
    logging.basicConfig(level=logging.INFO)
    figures = (run_peer if side == "peer" else run_paperformer)(plan)
    Path(plan.folder, "figures.json").write_text(json.dumps(asdict(figures)), "utf-8")


# --- turns, and the table ---


def take_turn(side: str, plan: Plan, threads: int) -> Figures:
    """Runs one side in a process of its own."""
    command = [sys.executable, __file__, f"--threads={threads}", f"--worker={side}"]
    environment = os.environ | {"HF_DATASETS_CACHE": f"{plan.folder}/datasets", "HF_HUB_OFFLINE": "1"}
    started = time.perf_counter()
    done = subprocess.run(
        command, input=json.dumps(asdict(plan)), capture_output=True, text=True, env=environment, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        sys.exit(f"{side} failed:\n{done.stderr}")
    figures = Figures(**json.loads(Path(plan.folder, "figures.json").read_text("utf-8")))
    return Figures(**asdict(figures) | {"process_seconds": seconds - figures.seconds})


def measure(plan: Plan, options: argparse.Namespace) -> dict[str, list[Figures]]:
    """Lets the sides take turns. A first round fills the caches of both and is not counted."""
    figures: dict[str, list[Figures]] = {side: [] for side in SIDES}
    for turn in range(0 if options.warm_up else 1, options.rounds + 1):
        for side in SIDES:
            one = take_turn(side, plan, options.threads)
            if turn > 0:
                figures[side].append(one)
            name = f"round {turn}" if turn else "warm-up"
            print(
                f"{plan.workload}, {name:8} {side:12} {one.speed:8,.0f} tokens/s in {one.seconds:.1f} s, of which "
                f"steps {one.step_seconds:.1f} s (processor {one.processor_seconds:.1f} s)",
                file=sys.stderr,
            )
    return figures


def spread(values: Iterable[float], form: str) -> str:
    """Median, and the lowest to the highest."""
    values = list(values)
    median, low, high = (format(value, form) for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low} to {high})"


def ratio(figures: dict[str, list[Figures]], name: str) -> str:
    """Ours over the peer's, round by round."""
    rounds = zip(figures["paperformer"], figures["peer"], strict=True)
    return spread((getattr(ours, name) / getattr(peers, name) for ours, peers in rounds), ".2f")


def section(plan: Plan, figures: dict[str, list[Figures]]) -> str:
    """One workload's results as Markdown."""
    titles = {
        "translation": ("Translation", "`MarianMTModel` in a loop like `run_translation_no_trainer.py`"),
        "language modelling": ("Language modelling", "`GPT2LMHeadModel` in a loop like `run_clm_no_trainer.py`"),
    }
    title, peer = titles[plan.workload]
    ours, theirs = figures["paperformer"][0], figures["peer"][0]
    if plan.workload == "translation":
        what = (
            f"Multi30k, {LANGUAGES[0]}-{LANGUAGES[1]}; {LAYERS}+{LAYERS} layers, {HIDDEN} wide, {INNER} inner, {HEADS} "
            f"heads, dropout {DROPOUT}, no label smoothing. Ours: up to 4,096 tokens a batch. Peer: {plan.batch_size} "
            "pairs a batch in random order, which makes a pass as many updates as ours."
        )
    else:
        what = (
            f"Characters of Shakespeare; {LAYERS} layers, {HIDDEN} wide, {INNER} inner, {HEADS} heads, no dropout. "
            f"Both: {BLOCKS_PER_BATCH} blocks of {CONTEXT} characters a batch, in random order."
        )
    lines = [f"## {title}", "", what, ""]
    lines += ["| | " + peer + " | paperformer | ratio |", "|---|---|---|---|"]
    rows = [
        ("target tokens a second, whole run", "speed", ",.0f"),
        ("seconds for the pass, whole run", "seconds", ".1f"),
        ("seconds of the processor for the pass, whole run", "processor_seconds", ".1f"),
        ("target tokens a second, steps alone", "step_speed", ",.0f"),
    ]
    for label, name, form in rows:
        cells = [spread((getattr(one, name) for one in figures[side]), form) for side in SIDES]
        lines.append(f"| {label} | {' | '.join(cells)} | {ratio(figures, name)} |")
    derived: list[tuple[str, Callable[[Figures], float], str]] = [
        ("seconds before and after the steps", lambda one: one.seconds - one.step_seconds, ".1f"),
        ("seconds to start and end the process, not counted", lambda one: one.process_seconds, ".1f"),
    ]
    for label, value, form in derived:
        cells = [spread(map(value, figures[side]), form) for side in SIDES]
        lines.append(f"| {label} | {' | '.join(cells)} | |")
    peaks = [max(one.peak for one in figures[side]) / 1e6 for side in SIDES]
    lines += [
        f"| peak memory, MB | {peaks[0]:,.0f} | {peaks[1]:,.0f} | {peaks[1] / peaks[0]:.2f} |",
        f"| updates in the pass | {theirs.updates:,} | {ours.updates:,} | |",
        f"| target tokens an update, mean | {theirs.tokens / theirs.updates:,.0f} "
        f"| {ours.tokens / ours.updates:,.0f} | |",
        f"| padding, of all positions | {theirs.padding:.1%} | {ours.padding:.1%} | |",
        f"| parameters | {theirs.parameters:,} | {ours.parameters:,} | |",
    ]
    return "\n".join([*lines, ""])


def header(options: argparse.Namespace, load: float) -> str:
    """What was measured, and how."""
    given = ["PATH" if argument in map(str, options.paths.values()) else argument for argument in sys.argv[1:]]
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("paperformer", "torch", "transformers", "accelerate", "datasets")
    )
    text = "all of the training text" if options.share == 1 else f"the first {options.share:.0%} of the training text"
    return f"""# Training end to end

A run is one pass over {text}, through the scripts: opening the data, which both sides have
tokenised before and find in their caches, building the model, all steps with their batches and records, one validation
of the loss and one checkpoint. What follows is left out: scores of the test set, the finished model. The peer is
written after transformers' examples: tokenised by `datasets`, a `DataLoader` that shuffles and pads to the longest row
of a batch, AdamW as torch has it by default, `get_scheduler`, Accelerate, tqdm. Its translation example validates by
generating; here it computes the loss, as ours does. Everything of ours is the default of the package, with its records
of gradient norms, FLOPs and padding, clipping, the guard against spikes, samples at the validation, and a verified
checkpoint. Float32 on both sides, and the same tokenizer. Each run is a process; the two sides took turns,
{options.rounds} times. Medians, with the lowest to the highest round; ratios are taken round by round.

- Command: `{shlex.join(["python", "benchmarks/end_to_end.py", *given])}`
- Date: {datetime.now(UTC):%Y-%m-%d}
- Hardware: {describe_hardware()}, threads: {options.threads} (load average before the start: {load:.1f})
- Software: Python {sys.version.split()[0]}, {versions}
"""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multi30k", type=Path, metavar="FOLDER", help="with train.en, train.de, val.en, val.de (.gz)")
    parser.add_argument("--shakespeare", type=Path, metavar="FILE", help="a text file")
    parser.add_argument("--share", type=float, default=1.0, help="of the text that is used (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: %(default)s")
    parser.add_argument("--fast", action="store_true", help="little text and one round, to see that it works")
    parser.add_argument("--worker", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.paths = {"translation": options.multi30k, "language modelling": options.shakespeare}
    options.paths = {workload: path for workload, path in options.paths.items() if path}
    if not options.paths and not options.worker:
        parser.error("give --multi30k FOLDER, --shakespeare FILE, or both")
    options.warm_up = not options.fast
    if options.fast:
        options.share, options.rounds = 0.01, 1
    return options


def main() -> None:
    options = parse_options()
    if options.worker:
        work(options.worker, Plan(**json.load(sys.stdin)), options.threads)
        return
    sections = [header(options, os.getloadavg()[0])]
    for workload, path in options.paths.items():
        with tempfile.TemporaryDirectory() as folder:
            plan = prepare(workload, path, Path(folder), options.share)
            sections.append(section(plan, measure(plan, options)))
    text = "\n".join(sections)
    print(text)
    if not options.fast:
        RESULTS.write_text(text, encoding="utf-8")
        print(f"Written to {RESULTS}")


if __name__ == "__main__":
    main()
