"""Runs of the engine on several processes, one after the other, because starting processes takes longer than the runs.

torchrun --nproc_per_node 2 two_processes.py CASES.json: a list of runs, each with `family`, `arguments` of the command
line, a `layout`, and perhaps a `disturbance`. What a run raises is written into its folder.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from paperformer.training.data.splits import pair_splits, text_splits
from paperformer.training.data.tokenizers import Tokenizers, load_tokenizers
from paperformer.training.engine import loop, step
from paperformer.training.engine.loop import fit
from paperformer.training.recipe.data import ParallelData, TextData
from paperformer.training.recipe.parsing import parse_recipe
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.reporting import recorder
from paperformer.training.run_folder import RunFolder
from paperformer.training.tasks.language_modeling import language_modeling_task
from paperformer.training.tasks.translation import translation_task

LAYOUTS = {
    "whole": {"ACCELERATE_USE_FSDP": "false", "PARALLELISM_CONFIG_TP_SIZE": "1"},
    "sharded": {"ACCELERATE_USE_FSDP": "true", "PARALLELISM_CONFIG_TP_SIZE": "1"},
    "tensor": {"ACCELERATE_USE_FSDP": "false", "PARALLELISM_CONFIG_TP_SIZE": "2"},
}
"""What the launcher would set."""


def disturb(task: Any, what: str, rank: int) -> None:
    """Lets something happen on the second process only, while its third batch is made."""
    collate, calls = task.batches.collate, iter(range(1, 1000))

    def collate_and_disturb(batch: Any) -> Any:
        if next(calls) == 3 and rank == 1:
            if what == "stop":
                os.kill(os.getpid(), signal.SIGTERM)
            elif what == "die":
                print("rank 1 dies", file=sys.stderr, flush=True)
                os._exit(3)
        return collate(batch)

    if what == "poison":
        step.dry_run = lambda *_: 1  # so that the first backward pass is the first step's
        build = task.build_model

        def build_poisoned() -> Any:
            model = build()
            passes = iter(range(1, 1000))
            parameter = next(p for name, p in model.named_parameters() if "o_proj" in name)
            parameter.register_hook(lambda grad: grad * float("nan") if rank == 1 and next(passes) == 3 else grad)
            return model

        task.build_model = build_poisoned
    task.batches.collate = collate_and_disturb


def run(case: dict[str, Any]) -> None:
    os.environ.update(LAYOUTS[case["layout"]])
    recipe: Recipe[Any]
    task: Any
    if case["family"] == "lm":
        recipe = parse_recipe(case["arguments"], PaperformerLMConfig, TextData)
        make, splits = language_modeling_task, text_splits(recipe)
    else:
        recipe = parse_recipe(case["arguments"], PaperformerSeq2SeqConfig, ParallelData)
        make, splits = translation_task, pair_splits(recipe)  # type: ignore[assignment]
    tokenizers: Tokenizers = load_tokenizers(Path(case["tokenizer"]))
    task = make(recipe, splits, tokenizers)
    AcceleratorState._reset_state()
    accelerator = Accelerator(cpu=True, mixed_precision="no")
    if "disturbance" in case:
        task.batches = SimpleNamespace(
            pools=task.batches.pools, collate=task.batches.collate, longest_batch=task.batches.longest_batch
        )  # so that the longest batch is made undisturbed
        disturb(task, case["disturbance"], accelerator.process_index)
    build, built = task.build_model, []

    def build_and_count() -> Any:
        built.append(True)
        return build()

    task.build_model = build_and_count
    folder = RunFolder(recipe.run)
    if accelerator.is_main_process:
        folder.create(recipe.yaml)
    accelerator.wait_for_everyone()
    try:
        fitted = fit(task, recipe, folder, accelerator)
        result = {"weights": fitted.weights, "step": fitted.progress.step}
        evaluation = fitted.evaluate("test")
        if evaluation is not None:
            scores = {score.metric.name: score.value for score in evaluation.scores}
            found = {"scores": scores, "outputs": evaluation.outputs, "built": len(built)}
            (folder.path / f"evaluation-{accelerator.process_index}.json").write_text(json.dumps(found))
        if accelerator.is_main_process:
            torch.save(fitted.model.state_dict(), folder.path / "final.pt")
    except Exception as error:  # noqa: BLE001 - what the test asks about
        result = {"error": type(error).__name__, "message": str(error)}
    torch.save(torch.get_rng_state(), folder.path / f"generator-{accelerator.process_index}.pt")
    (folder.path / f"result-{accelerator.process_index}.json").write_text(json.dumps(result))
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    recorder.LOG_EVERY = 1
    loop.peak_flops_of = lambda *_: 1e12  # not worth a second, nor is a parser for every run
    for one in json.loads(Path(sys.argv[1]).read_text()):
        run(one)
