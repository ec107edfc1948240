"""Run in a process whose paperformer is a copy with the extensions of `test_extending.py`: uses each, and prints JSON.

python with_extensions.py FOLDER
"""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

TINY = {
    "cleaning.duplicates": "keep",
    "cleaning.leak_check": "false",
    "tokenizer.vocab_size": 290,
    "model.hidden_size": 16,
    "model.intermediate_size": 24,
    "model.num_attention_heads": 2,
    "optimization.warmup_steps": 1,
    "optimization.max_steps": 8,
    "optimization.tokens_per_batch": 64,
    "evaluation.every_steps": 4,
}


def command_line(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def use_objective(folder: Path) -> dict[str, Any]:
    """Trains by it, from a file of the new format, and selects the weights by the new metric."""
    from paperformer.cli import main as run_command
    from paperformer.training.data.readers.sources import Source, pair_reader
    from paperformer.training.data.text.bad_lines import BadLines
    from paperformer.training.reporting.comparison import read_run, score_rows
    from paperformer.training.run import main, make_tokenizers
    from paperformer.training.tasks.registry import OBJECTIVES

    pairs = [("A dog sleeps.", "Ein Hund schläft."), ("A cat runs.", "Eine Katze läuft."), ("He sings.", "Er singt.")]
    folder = folder / "pairs"
    folder.mkdir(parents=True)
    for split, count in {"train": 30, "validation": 5, "test": 5}.items():
        (folder / f"{split}.pipes").write_text("".join(f"{a} | {b}\n" for a, b in (pairs * 10)[:count]), "utf-8")
    options = TINY | {
        "output_dir": folder / "runs",
        "data.dataset": folder,
        "data.source_language": "en",
        "data.target_language": "de",
        "data.max_length": 40,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
        "optimization.learning_rate": 0.03,
        "evaluation.num_beams": 1,
        "evaluation.select_by": "length_ratio",
    }
    objective = OBJECTIVES["reversal"]
    arguments = command_line(options | {"name": "one"})
    model = main(objective, arguments)
    main(objective, command_line(options | {"name": "two"}))
    run, other = read_run(model.parent), read_run(folder / "runs" / "two")
    evaluation = json.loads((model / "evaluation.json").read_text("utf-8"))
    recipe = objective.read_recipe(arguments)
    splits = objective.open_splits(recipe)
    batches = objective.make_task(recipe, splits, make_tokenizers(objective, recipe, splits)).batches
    masks = [batches.collate(batch)["attention_mask"] for batch in next(batches.pools(0, 0))]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        run_command(["train", "reversal", "--help"])
    chunks = pair_reader(Source(path=str(folder / "train")), "en", "de").chunks(BadLines())
    return {
        "metric": {
            "validated": list(run.validation[4]),
            "selected by": run.select_by,
            "in evaluation.json": evaluation["test"]["length_ratio"],
            "card": (model / "README.md").read_text("utf-8"),
            "report": (model.parent / "report.html").read_text("utf-8"),
            "compared": [
                f"{row.split} {row.metric.name}"
                for row in score_rows([run, other])
                if row.metric.name == "length_ratio" and row.best is not None
            ],
        },
        "reader": {
            "sources": [Path(source["name"]).name for source in splits.report()["train"]["sources"]],
            "first": [column[0].as_py() for column in next(chunks).columns],
        },
        "objective": {
            "task of the run": run.task,
            "task of the card": evaluation["test"]["task"],
            "help": said.getvalue(),
            "model": json.loads((model / "config.json").read_text("utf-8"))["architectures"][0],
            "reads from the end": all(mask[:, -1].all() for mask in masks) and not all(mask.all() for mask in masks),
        },
    }


def use_optimizer(folder: Path) -> dict[str, Any]:
    """Trains a tiny language model with it."""
    from paperformer.training.engine.optimizers import build_optimizers
    from paperformer.training.recipe.optimization import Optimization
    from paperformer.training.run import main
    from paperformer.training.tasks.registry import OBJECTIVES

    text = folder / "text"
    text.mkdir(parents=True)
    lines = [f"{subject} {verb} by the river {number}.\n" for number in range(30) for subject, verb in SENTENCES]
    for split, count in {"train": 90, "validation": 6, "test": 6}.items():
        (text / f"{split}.txt").write_text("".join(lines[:count]), "utf-8")
    options = TINY | {
        "name": "sgd",
        "output_dir": folder / "runs",
        "data.dataset": text,
        "data.context_length": 16,
        "model.num_hidden_layers": 1,
        "optimization.optimizer": "sgd",
        "optimization.learning_rate": 1.0,
    }
    model = main(OBJECTIVES["lm"], command_line(options))
    records = [json.loads(line) for line in (model.parent / "metrics.jsonl").read_text("utf-8").splitlines()]
    losses = [record["validation"]["loss"] for record in records if "validation" in record]
    made = build_optimizers(nn.Linear(2, 2), Optimization(optimizer="sgd"))  # type: ignore[arg-type]
    recipe = (model.parent / "recipe.yaml").read_text("utf-8")
    return {
        "optimizers": [type(each).__name__ for each in made],
        "losses": losses,
        "is in the recipe": "optimizer: sgd" in recipe,
    }


SENTENCES = [("The dog", "sleeps"), ("A cat", "runs"), ("The man", "sings")]


def use_position_scheme(folder: Path) -> dict[str, Any]:
    """Makes a model of each family with it: forward, generate, save, load, count, draw."""
    import paperformer
    from paperformer.plots.position_schemes import draw_positions
    from paperformer.training.costs.parameters import count_parameters

    sizes: dict[str, Any] = {
        "vocab_size": 30,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 2,
        "position_embedding_type": "logarithmic",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.5,
        "initialization": "normal",
    }
    classes: dict[str, Any] = {
        "seq2seq": (paperformer.PaperformerSeq2SeqConfig, paperformer.PaperformerForConditionalGeneration),
        "lm": (paperformer.PaperformerLMConfig, paperformer.PaperformerForCausalLM),
        "encoder": (paperformer.PaperformerEncoderConfig, paperformer.PaperformerForMaskedLM),
    }
    found: dict[str, Any] = {}
    for family, (config_class, model_class) in classes.items():
        torch.manual_seed(0)
        depth = {"encoder_layers": 2, "decoder_layers": 2} if family == "seq2seq" else {"num_hidden_layers": 2}
        model = model_class(config_class(**sizes, **depth)).eval()
        ids = torch.tensor([[5, 9, 7, 11, 6]])
        turned = ids[:, [1, 0, 2, 3, 4]]
        more = {"labels": ids} if family == "seq2seq" else {}
        with torch.no_grad():
            logits = model(ids, **more).logits
            differs = not torch.allclose(logits[:, -1], model(turned, **more).logits[:, -1], atol=1e-4)
            model.save_pretrained(folder / family)
            loaded = model_class.from_pretrained(folder / family).eval()
            is_same = torch.equal(loaded(ids, **more).logits, logits)
            outputs = []
            if family != "encoder":
                outputs = [model.generate(ids, max_new_tokens=8, use_cache=cached).tolist() for cached in (True, False)]
        title = draw_positions(model, family, 12).get_suptitle()
        found[family] = {
            "tells orders apart": differs,
            "generates with a cache as without": len(outputs) == 0 or outputs[0] == outputs[1],
            "is the same when loaded": is_same,
            "has its parameters counted": sum(count_parameters(model.config).values()) == model.num_parameters(),
            "is split over processes": model.config.base_model_tp_plan is not None,
            "title": title,
        }
    return found


if __name__ == "__main__":
    import paperformer

    work = Path(sys.argv[1])
    with contextlib.redirect_stdout(io.StringIO()):
        report = {
            "package": str(Path(paperformer.__file__).parent),
            **use_objective(work),
            "optimizer": use_optimizer(work),
            "position scheme": use_position_scheme(work),
        }
    print(json.dumps(report))
