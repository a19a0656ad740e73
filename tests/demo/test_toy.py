"""The toy pipeline computes what the article's does, in both of its versions."""

from __future__ import annotations

import importlib
import pickle
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from PIL import Image
from scipy.ndimage import binary_dilation

from unstarve.demo import toy
from unstarve.errors import UsageError


def masked_by(mask: torch.nn.Module, image: torch.Tensor, seed: int) -> torch.Tensor:
    np.random.seed(seed)
    result: torch.Tensor = mask(image.clone())
    return result


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    fraction=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_fast_mask_equals_the_convolution(height: int, width: int, fraction: float, seed: int) -> None:
    """From the same random state both masks give the same image, bit for bit, whatever its shape."""
    image = torch.randint(1, 256, (3, height, width), dtype=torch.uint8)
    slow = masked_by(toy.RandomMask(fraction), image, seed)
    fast = masked_by(toy.FastRandomMask(fraction), image, seed)
    assert torch.equal(slow, fast)


@pytest.mark.parametrize("mask", [toy.RandomMask, toy.FastRandomMask])
@pytest.mark.parametrize("shape", [(1, 17), (17, 1), (1, 1), (16, 16)])
def test_masks_zero_the_four_neighbours(mask: type[torch.nn.Module], shape: tuple[int, int]) -> None:
    """Exactly the drawn pixels and their four neighbours are zero, in every channel; the others keep their values."""
    np.random.seed(3)
    expected = binary_dilation(np.random.random(shape) < 0.25)
    image = masked_by(mask(), torch.full((3, *shape), 7, dtype=torch.uint8), seed=3)
    assert np.array_equal(image.numpy() == 0, np.broadcast_to(expected, (3, *shape)))
    assert set(image.flatten().tolist()) <= {0, 7}


@pytest.mark.parametrize("mask", [toy.RandomMask(), toy.FastRandomMask()], ids=lambda mask: type(mask).__name__)
def test_masks_write_in_place(mask: torch.nn.Module) -> None:
    """The mask changes the image it is given, as the article's does: the aliasing hazard must be there to be met."""
    image = torch.ones(3, 32, 32)
    assert mask(image) is image
    assert (image == 0).any()


@given(pixel=st_numpy.arrays(np.uint8, 3))
def test_yuv_is_that_of_jpeg(pixel: np.ndarray) -> None:
    """Colours agree with Pillow's YCbCr to within its rounding."""
    expected = np.asarray(Image.fromarray(pixel.reshape(1, 1, 3)).convert("YCbCr")).ravel()
    yuv = toy.RGBToYUV()(torch.from_numpy(pixel.reshape(3, 1, 1)))
    assert yuv.dtype == torch.float32
    assert np.allclose(yuv.numpy().ravel(), expected, atol=1.01)


@pytest.mark.parametrize("make_transform", [toy.transforms_as_published, toy.transforms_optimised])
@pytest.mark.parametrize("image_size", [256, 300])
def test_samples_feed_the_model(make_transform, image_size: int) -> None:  # type: ignore[no-untyped-def]
    """Either version gives float images of 3x256x256 between 0 and 1 with a label from 0 to 9."""
    image, label = toy.ToyDataset(make_transform(), image_size=image_size)[123]
    assert image.shape == (3, 256, 256)
    assert image.dtype == torch.float32
    assert 0 <= image.min() < image.max() <= 1
    assert label == 3


def test_both_versions_give_the_same_samples() -> None:
    """From the same random states the optimised transforms give the published ones' samples, bit for bit."""
    samples = []
    for make_transform in (toy.transforms_as_published, toy.transforms_optimised):
        np.random.seed(5)
        torch.manual_seed(5)
        samples.append(toy.ToyDataset(make_transform(), image_size=300)[0][0])
    assert torch.equal(*samples)


def test_the_dataset_can_go_to_spawned_workers() -> None:
    """The dataset survives pickling with its transforms, so that every start method works."""
    dataset = pickle.loads(pickle.dumps(toy.ToyDataset(toy.transforms_as_published(), image_size=256, length=5)))
    assert len(dataset) == 5
    assert dataset[4][1] == 4


def test_the_model_has_the_articles_size() -> None:
    """The model has 68,590 parameters and ten outputs for an image."""
    model = toy.ToyModel()
    assert sum(parameter.numel() for parameter in model.parameters()) == 68_590
    assert model(torch.zeros(2, 3, 256, 256)).shape == (2, 10)


def test_a_train_step_trains() -> None:
    """The step accepts what the loader gives, and steps on one batch lower its loss."""
    loader = toy.make_loader(toy.transforms_optimised(), image_size=256, batch_size=2, workers=0, pin_memory=False)
    torch.manual_seed(0)
    step = toy.make_train_step(torch.device("cpu"))
    images, labels = next(iter(loader))
    (model,) = (cell.cell_contents for cell in step.__closure__ or () if isinstance(cell.cell_contents, toy.ToyModel))
    losses = []
    for _ in range(8):
        with torch.no_grad():
            losses.append(torch.nn.functional.cross_entropy(model(images), labels).item())
        step((images, labels))
    assert losses[-1] < losses[0]


def test_missing_torchvision_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchvision the demo says what to install instead of showing a traceback."""
    monkeypatch.delitem(sys.modules, "unstarve.demo.toy")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(UsageError, match=r"torchvision.*pip install 'unstarve\[demo\]'"):
        importlib.import_module("unstarve.demo.toy")
