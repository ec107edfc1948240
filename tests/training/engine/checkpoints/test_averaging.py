import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from paperformer.training.console.input_error import InputError
from paperformer.training.engine.checkpoints.averaging import mean_weights


def saved(path: Path, **weights: torch.Tensor) -> Path:
    save_file(weights, path)
    return path


def test_the_mean_of_each_weight(tmp_path: Path) -> None:
    files = [
        saved(tmp_path / str(n), a=torch.full((2, 3), float(n)), b=torch.tensor([0.0, 10.0 * n])) for n in (1, 2, 6)
    ]
    mean = mean_weights(files)
    assert sorted(mean) == ["a", "b"]
    assert mean["a"].equal(torch.full((2, 3), 3.0))
    assert mean["b"].equal(torch.tensor([0.0, 30.0]))


def test_sums_are_of_64_bits(tmp_path: Path) -> None:
    """In float32, 2^24 + 1 is 2^24 again, and so the ones would be lost."""
    values = [2.0**24, 1.0, 1.0, -(2.0**24)]
    files = [saved(tmp_path / str(n), a=torch.tensor([value])) for n, value in enumerate(values)]
    assert mean_weights(files)["a"].item() == 0.5


@given(
    value=st.floats(width=32, allow_nan=False, allow_infinity=False),
    count=st.integers(1, 7),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_the_mean_of_equal_weights_is_that_weight(
    tmp_path_factory: pytest.TempPathFactory, value: float, count: int, dtype: torch.dtype
) -> None:
    weight = torch.tensor([value]).to(dtype)
    file = saved(tmp_path_factory.mktemp("weights") / "file", a=weight)
    mean = mean_weights([file] * count)["a"]
    assert mean.dtype == dtype
    assert mean.equal(weight)


def test_files_of_different_models(tmp_path: Path) -> None:
    one = saved(tmp_path / "one", a=torch.zeros(2), b=torch.zeros(3, 4))
    more = saved(tmp_path / "more", a=torch.zeros(2), b=torch.zeros(3, 4), c=torch.zeros(1))
    other = saved(tmp_path / "other", a=torch.zeros(2), b=torch.zeros(4, 3))
    for files in ([one, more], [more, one]):
        with pytest.raises(
            InputError, match=f"^{re.escape(str(more))} has a weight c, and {re.escape(str(one))} has not"
        ):
            mean_weights(files)
    with pytest.raises(
        InputError, match=r"^b is \(3, 4\) in .*/one and \(4, 3\) in .*/other; they are of different models"
    ):
        mean_weights([one, one, other])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    good = saved(tmp_path / "good", a=torch.zeros(2))
    (tmp_path / "half").write_bytes(good.read_bytes()[:-3])
    for name in ("half", "missing"):
        with pytest.raises(InputError, match=f"{name} holds no weights that can be read: "):
            mean_weights([good, tmp_path / name])
