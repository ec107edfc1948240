import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from paperformer.plots.gradient_norms import draw_gradients, read_gradient_history, sort_by_stack
from paperformer.training.console.input_error import InputError

STEPS = [20, 40, 60]
SEQ2SEQ = {
    "encoder.embed_tokens": [3.0, 2.0, 1.0],
    "encoder.layers.0": [1.0, 0.5, 0.25],
    "encoder.layers.1": [0.9, 0.4, 0.2],
    "encoder.norm": [0.1, 0.1, 0.2],
    "decoder.layers.0": [2.0, 1.0, 0.5],
    "lm_head": [5.0, 4.0, 3.0],
}
LM = {
    "embed_tokens": [3.0, 2.0, 1.0],
    **{f"layers.{i}": [0.1 * (i + 1)] * 3 for i in range(12)},
    "norm": [0.1, 0.1, 0.2],
}


def write(folder: Path, modules: dict[str, list[float]]) -> Path:
    """A run's folder with these gradient norms, and the other lines that a run writes."""
    records: list[dict[str, Any]] = [{"step": 0, "hardware": "a CPU"}]
    for index, step in enumerate(STEPS):
        norms = {name: values[index] for name, values in modules.items()}
        total = float(np.sqrt(np.sum(np.square(list(norms.values())))))
        records += [{"step": step, "loss": 1.0, "gradient_norm": total, "gradient_norm_by_layer": norms}]
        records += [{"step": step, "validation": {"loss": 1.0}}]
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return folder


def test_what_a_run_has_recorded(tmp_path: Path) -> None:
    history = read_gradient_history(write(tmp_path / "run", SEQ2SEQ))
    assert history.steps == STEPS
    assert history.modules == SEQ2SEQ
    assert history.total[0] == pytest.approx(np.sqrt(9 + 1 + 0.81 + 0.01 + 4 + 25))
    encoder, decoder = sort_by_stack(history)
    assert (encoder.name, encoder.layers) == ("encoder", [SEQ2SEQ["encoder.layers.0"], SEQ2SEQ["encoder.layers.1"]])
    assert encoder.others == {"embed_tokens": SEQ2SEQ["encoder.embed_tokens"], "norm": SEQ2SEQ["encoder.norm"]}
    assert (decoder.name, decoder.layers) == ("decoder", [SEQ2SEQ["decoder.layers.0"]])
    assert decoder.others == {"lm_head": SEQ2SEQ["lm_head"]}


def test_a_run_that_still_goes_on(tmp_path: Path) -> None:
    run = write(tmp_path, LM)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 80, "gradient_norm_by_la')
    assert read_gradient_history(run).steps == STEPS


def test_steps_that_were_done_again_after_a_roll_back_count_once(tmp_path: Path) -> None:
    run = write(tmp_path, LM)
    with (run / "metrics.jsonl").open("a") as file:
        for step in (40, 60, 80):
            norms = {"embed_tokens": step / 10}
            file.write(json.dumps({"step": step, "gradient_norm": 9.0, "gradient_norm_by_layer": norms}) + "\n")
    history = read_gradient_history(run)
    assert history.steps == [*STEPS, 80]
    assert history.modules["embed_tokens"] == [3.0, 4.0, 6.0, 8.0]
    assert history.total[1:] == [9.0, 9.0, 9.0]


def test_norms_that_were_not_finite(tmp_path: Path) -> None:
    run = write(tmp_path, LM)
    with (run / "metrics.jsonl").open("a") as file:
        norms = {"embed_tokens": None}
        file.write(json.dumps({"step": 80, "gradient_norm": None, "gradient_norm_by_layer": norms}) + "\n")
    history = read_gradient_history(run)
    assert np.isnan([history.total[-1], history.modules["embed_tokens"][-1]]).all()


def test_lines_of_a_language_model(tmp_path: Path) -> None:
    history = read_gradient_history(write(tmp_path, LM))
    figure = draw_gradients(history, "tiny")
    axes, scale = figure.axes
    assert axes.get_yscale() == "log"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step (optimizer updates)", "gradient norm before clipping")
    lines = {line.get_label(): line for line in axes.lines}
    expected = {"all parameters": history.total, "embed_tokens": LM["embed_tokens"], "norm": LM["norm"]}
    expected |= {f"layer {i}": LM[f"layers.{i}"] for i in range(12)}
    assert lines.keys() == expected.keys()
    for name, norms in expected.items():
        assert list(lines[name].get_xdata()) == STEPS
        assert list(lines[name].get_ydata()) == norms
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["all parameters", "embed_tokens", "norm"]
    assert scale.get_ylabel() == "layer"
    assert len({tuple(lines[f"layer {i}"].get_color()) for i in range(12)}) == 12
    brightness = [sum(lines[f"layer {i}"].get_color()[:3]) for i in range(12)]
    assert brightness == sorted(brightness)  # by depth


def test_heat_maps_of_both_stacks_on_one_scale(tmp_path: Path) -> None:
    figure = draw_gradients(read_gradient_history(write(tmp_path, SEQ2SEQ)), "tiny", heatmap=True)
    encoder, decoder = (axes for axes in figure.axes if axes.get_xlabel())
    (encoder_mesh,), (decoder_mesh,) = encoder.collections, decoder.collections
    assert encoder_mesh.get_array().tolist() == [SEQ2SEQ["encoder.layers.0"], SEQ2SEQ["encoder.layers.1"]]
    assert decoder_mesh.get_array().tolist() == [SEQ2SEQ["decoder.layers.0"]]
    assert encoder_mesh.get_clim() == decoder_mesh.get_clim() == (0.2, 2.0)
    assert (encoder.get_ylabel(), encoder.get_xlabel()) == ("layer", "step (optimizer updates)")
    assert decoder.get_ylim() == encoder.get_ylim()
    FigureCanvasAgg(figure).draw()
    for axes in figure.axes:
        if axes.get_ylabel() == "layer":  # the decoder has a single one
            low, high = sorted(axes.get_ylim())
            assert [tick for tick in axes.get_yticks() if low <= tick <= high] == list(range(round(high + 0.5)))


def test_runs_that_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nowhere; give a run's folder, such as runs/NAME"):
        read_gradient_history(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"is no run's folder: no metrics.jsonl"):
        read_gradient_history(tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 20, "loss": 3, "gradient_norm": 1.0}\n')
    with pytest.raises(
        InputError, match=r"metrics.jsonl has gradient norms by layer of 0 steps; a plot needs at least 2"
    ):
        read_gradient_history(tmp_path)
    metrics.write_text('{"step": 20, "lo\n{"step": 40}\n')
    with pytest.raises(InputError, match=r"metrics.jsonl is damaged: "):
        read_gradient_history(tmp_path)
