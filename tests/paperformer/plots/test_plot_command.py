import html
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from paperformer.cli import PLOTS, main


@pytest.fixture(scope="module")
def folders(
    make_model: Callable[..., PreTrainedModel],
    tokenizers: dict[str, PreTrainedTokenizerBase],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """A model's folder of each family, as runs leave them."""
    saved = {}
    for family, tokenizer in tokenizers.items():
        saved[family] = tmp_path_factory.mktemp("runs") / f"tiny-{family}" / "model"
        make_model(family).save_pretrained(saved[family])
        tokenizer.save_pretrained(saved[family])
    return saved


def shown_in(svg: Path) -> set[str]:
    """The texts of an SVG, which matplotlib writes as comments beside their outlines."""
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    root = ET.parse(svg, parser).getroot()
    assert root.tag.endswith("svg")
    return {html.unescape(node.text or "").strip() for node in root.iter() if node.tag is ET.Comment}


@pytest.mark.proof
@pytest.mark.parametrize("family", ["seq2seq", "lm", "encoder"])
def test_attention_of_every_family(
    family: str, folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    svg, png = tmp_path / "new" / "figure.svg", tmp_path / "figure.PNG"
    command = ["plot", "attention", str(folders[family]), "--text", "A dog runs."]
    main([*command, "--output", str(svg)])
    assert capsys.readouterr().out == f"{svg}\n"
    texts = shown_in(svg)
    name = "Cross-attention" if family == "seq2seq" else "Self-attention"
    assert f"{name} of tiny-{family}" in texts
    assert {".", "layer 0, head 0", "layer 1, head 3"} <= texts
    assert "layer 2, head 0" not in texts
    before = svg.read_bytes()
    main([*command, "--output", str(svg)])
    assert svg.read_bytes() == before  # overwritten by the same
    main([*command, "--layer", "1", "--head", "2", "--scale", "max", "--output", str(png)])
    with Image.open(png) as image:
        image.verify()
        assert image.format == "PNG"
    assert [path.name for path in tmp_path.rglob("*.partial")] == []


def test_parts_of_an_encoder_decoder(folders: dict[str, Path], tmp_path: Path) -> None:
    for part, title in (("encoder", "Encoder self-attention"), ("decoder", "Decoder self-attention")):
        output = tmp_path / f"{part}.svg"
        options = ["--text", "A dog", "--target", "Ein Hund", "--part", part, "--output", str(output)]
        main(["plot", "attention", str(folders["seq2seq"]), *options])
        texts = shown_in(output)
        assert f"{title} of tiny-seq2seq" in texts
        assert ("<s>" in texts) == (part == "decoder")
        assert ("layer 2, head 0" in texts) == (part == "encoder")


def test_positions_need_no_tokenizer(folders: dict[str, Path], tmp_path: Path) -> None:
    model, output = tmp_path / "model", tmp_path / "positions.svg"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).symlink_to(folders["lm"] / name)
    main(["plot", "positions", str(model), "--output", str(output)])
    assert "distance (tokens)" in shown_in(output)


def test_gradients(tmp_path: Path) -> None:
    lines = [f'{{"step": {s}, "gradient_norm": 1, "gradient_norm_by_layer": {{"layers.0": 1}}}}\n' for s in (20, 40)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    output = tmp_path / "gradients.svg"
    main(["plot", "gradients", str(tmp_path), "--heatmap", "--output", str(output)])
    assert {f"Gradient norm by layer of {tmp_path.name}", "gradient norm"} <= shown_in(output)
    main(["plot", "gradients", str(tmp_path), "--output", str(output)])
    assert "gradient norm" not in shown_in(output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the kind of plot is missing; say paperformer plot attention, "),
        (["losses"], "'losses' is no kind of plot; say paperformer plot attention, "),
        (["attention"], "the following arguments are required: model (paperformer plot attention --help)"),
        (["attention", "./nowhere", "--text", "x"], "there is no folder ./nowhere"),
        (["positions", "./nowhere"], "there is no folder ./nowhere"),
        (["positions", "m", "--length", "1"], "--length is 1; it must be at least 2"),
        (["gradients", "./nowhere"], "there is no folder nowhere; give a run's folder"),
        (["gradients", ".", "--output", "x.pdf"], "--output is x.pdf; it must end in .png or .svg"),
        (["positions", "m", "--output", "positions"], "--output is positions; it must end in .png or .svg"),
        (["attention", "m", "--layer", "last"], "--layer is last; it must be an integer or all"),
        (["attention", "m", "--heads", "1"], "there is no option --heads; did you mean --head?"),
    ],
)
def test_bad_command_lines(arguments: list[str], message: str, refused: Callable[..., str]) -> None:
    assert message in refused("plot", *arguments)


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("lm", [], "--text is empty; it must have text"),
        ("lm", ["--text", "x", "--layer", "2"], "--layer is 2; it must be from 0 to 1, or all"),
        ("lm", ["--text", "x", "--head", "-1"], "--head is -1; it must be from 0 to 3, or all"),
        ("lm", ["--text", "x", "--part", "cross"], "--part is cross; a paperformer-lm has self"),
        ("seq2seq", ["--text", "x", "--part", "self"], "a paperformer-seq2seq has encoder, decoder, cross"),
        ("encoder", ["--text", "x", "--target", "y"], "--target is for encoder-decoders; this model is a"),
    ],
)
def test_options_that_do_not_fit_the_model(
    family: str, options: list[str], message: str, folders: dict[str, Path], refused: Callable[..., str]
) -> None:
    assert message in refused("plot", "attention", folders[family], *options)


def test_where_nothing_can_be_written(refused: Callable[..., str], tmp_path: Path, folders: dict[str, Path]) -> None:
    (tmp_path / "folder.svg").mkdir()
    assert "which is a folder; it must be a file" in refused(
        "plot", "gradients", ".", "--output", tmp_path / "folder.svg"
    )
    (tmp_path / "file").touch()
    output = tmp_path / "file" / "x.svg"
    assert f"cannot write {tmp_path / 'file'}" in refused("plot", "positions", folders["lm"], "--output", output)


def test_without_matplotlib(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    for kind in PLOTS:
        line = refused("plot", kind, ".")
        assert line == "plots need matplotlib, paperformer's extra plots; install it with: pip install matplotlib"


def test_pyplot_is_left_alone(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl

    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    settings = mpl.rcParams.copy()  # a dict() of them would import pyplot
    main(["plot", "positions", str(folders["lm"]), "--output", str(tmp_path / "x.png")])
    assert "matplotlib.pyplot" not in sys.modules
    assert mpl.rcParams.copy() == settings


@pytest.mark.parametrize("kind", PLOTS)
def test_every_option_is_explained(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["plot", kind, "--help"])
    assert stopped.value.code in (0, None)
    shown = " ".join(capsys.readouterr().out.split())
    documentation = " ".join((PLOTS[kind].__doc__ or "").split())
    options: list[Any] = [option for option in PLOTS[kind].__annotations__ if option != "return"]
    for option in options:
        assert documentation.split(f" {option}: ", 1)[1].split(".")[0] in shown, option


def test_the_kinds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plot", "--help"])
    shown = capsys.readouterr().out
    for kind in PLOTS:
        assert f"\n  {kind} " in shown
    main(["--help"])
    assert "\n  plot " in capsys.readouterr().out
