"""What becomes of real data set classes when they are taken apart: a table, and a check of those that run offline.

For each class of torchvision and torch: how many units its `__getitem__` falls into, or why it stays whole. Classes
that can be built from a few generated files, and those of MONAI and timm where they are installed, are also watched, and
cut at every unit: the rest of the function behind each cut must give the sample that the whole function gives. Run it
with `python benchmarks/real_datasets.py`.

Bound: at least 25 different classes have cut points, and the same sample behind each of them.
"""

from __future__ import annotations

import inspect
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset
from torchvision.transforms import v2

from unstarve.measure.cuts.observer import Observer
from unstarve.measure.cuts.server import Server
from unstarve.measure.cuts.split import Unsplittable, split

LIMIT = 2
"""Values kept at each cut."""

FEWEST_CLASSES = 25
"""Bound on the classes that are cut."""

LISTING_FILES = ("Flowers102", "DTD", "Food101", "FGVCAircraft", "SUN397", "CLEVRClassification")
"""Classes of torchvision that keep files and labels apart."""

LISTING_PAIRS = ("GTSRB", "RenderedSST2", "StanfordCars", "Imagenette")
"""Classes of torchvision that keep pairs of a file and a label."""


def picture(path: Path, size: int = 24) -> str:
    """A picture of noise in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.randint(0, 255, (size, size, 3), np.uint8)).save(path)
    return str(path)


def built(root: Path) -> Iterator[tuple[str, Any]]:
    """Data sets over files generated under `root`, and data sets in memory, by name."""
    tf = v2.Compose(
        [v2.Resize(16), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.5])]
    )
    old = torchvision.transforms.Compose([torchvision.transforms.Resize(16), torchvision.transforms.ToTensor()])
    for kind in ("cat", "dog"):
        for number in range(3):
            picture(root / "folder" / kind / f"{number}.png")
    folder = torchvision.datasets.ImageFolder(root / "folder", tf)
    tensors = TensorDataset(torch.rand(6, 3, 8, 8), torch.arange(6))
    yield "FakeData", torchvision.datasets.FakeData(6, (3, 24, 24), 3, tf)
    yield "ImageFolder", folder
    yield "DatasetFolder", torchvision.datasets.DatasetFolder(str(root / "folder"), Image.open, (".png",), old)
    yield "Subset", Subset(folder, [1, 3, 5])
    yield "Subset of Subset", Subset(Subset(folder, [1, 3, 5]), [0, 2])
    yield "ConcatDataset", ConcatDataset([folder, folder])
    yield "TensorDataset", tensors
    yield "StackDataset", StackDataset(tensors, folder)
    yield "CocoDetection", coco(root, v2.Compose([v2.ToImage(), v2.Resize(16)]))
    yield "VOCDetection", voc(root, v2.Compose([v2.PILToTensor()]))
    yield "VOCSegmentation", voc(root, None, torchvision.datasets.VOCSegmentation)
    yield from in_memory(tf)
    yield from of_paths(root, tf)
    yield from of_other_libraries(root, tf)


def coco(root: Path, transform: Any) -> Any:
    """Three pictures with one box each; None without `pycocotools`."""
    images = [{"id": n, "file_name": Path(picture(root / "coco" / f"{n}.jpg")).name} for n in range(3)]
    boxes = [
        {"id": n, "image_id": n, "bbox": [1, 1, 5, 5], "category_id": 1, "area": 25, "iscrowd": 0} for n in range(3)
    ]
    (root / "coco.json").write_text(json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 1}]}))
    try:
        return torchvision.datasets.CocoDetection(str(root / "coco"), str(root / "coco.json"), transform)
    except ModuleNotFoundError:
        return None


def voc(root: Path, transform: Any, kind: Any = torchvision.datasets.VOCDetection) -> Any:
    """Three pictures with a box and a mask each."""
    base = root / "VOCdevkit" / "VOC2012"
    for folder in ("ImageSets/Main", "ImageSets/Segmentation", "Annotations", "SegmentationClass"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    for number in range(3):
        picture(base / "JPEGImages" / f"{number}.jpg")
        picture(base / "SegmentationClass" / f"{number}.png")
        (base / "Annotations" / f"{number}.xml").write_text(
            "<annotation><object><name>cat</name></object></annotation>"
        )
    for folder in ("Main", "Segmentation"):
        (base / "ImageSets" / folder / "train.txt").write_text("0\n1\n2\n")
    return kind(str(root), transform=transform)


def in_memory(tf: Any) -> Iterator[tuple[str, Any]]:
    """Classes that keep their pictures in memory, made without their files."""
    for name in (
        "CIFAR10",
        "CIFAR100",
        "MNIST",
        "FashionMNIST",
        "KMNIST",
        "EMNIST",
        "USPS",
        "SVHN",
        "STL10",
        "SEMEION",
    ):
        kind = getattr(torchvision.datasets, name)
        dataset = kind.__new__(kind)
        grey = name in ("MNIST", "FashionMNIST", "KMNIST", "EMNIST")
        shape = (
            (6, 28, 28)
            if grey or name in ("USPS", "SEMEION")
            else (6, 3, 32, 32)
            if name in ("SVHN", "STL10")
            else (6, 32, 32, 3)
        )
        data = np.random.randint(0, 255, shape, np.uint8)
        dataset.data = torch.from_numpy(data) if grey else data
        dataset.targets = torch.arange(6) if grey else list(range(6))
        dataset.labels = np.arange(6)
        dataset.transform, dataset.target_transform = tf, None
        yield name, dataset


def of_paths(root: Path, tf: Any) -> Iterator[tuple[str, Any]]:
    """Classes that keep the paths of their pictures, made without the archives that these come in."""
    paths = [picture(root / "pictures" / f"{number}.png") for number in range(6)]
    labels = list(range(6))
    pairs = list(zip(paths, labels, strict=True))
    held: dict[str, dict[str, Any]] = {
        **{name: {"_image_files": paths, "_labels": labels} for name in LISTING_FILES},
        **{name: {"_samples": pairs} for name in LISTING_PAIRS},
        "FER2013": {"_samples": [(torch.randint(0, 255, (24, 24), dtype=torch.uint8), label) for label in labels]},
        "LFWPeople": {"data": paths, "targets": labels, "_loader": load},
        "LFWPairs": {"data": list(zip(paths, paths[1:] + paths[:1], strict=True)), "targets": labels, "_loader": load},
        "OxfordIIITPet": {
            "_images": paths, "_labels": labels, "_bin_labels": labels, "_segs": paths,
            "_target_types": ["category", "segmentation"], "transforms": None,
        },
        "MovingMNIST": {"data": torch.randint(0, 255, (6, 4, 1, 24, 24), dtype=torch.uint8)},
    }  # fmt: skip
    for name, attributes in held.items():
        kind = getattr(torchvision.datasets, name)
        dataset = kind.__new__(kind)
        own_tf = None if name == "MovingMNIST" else tf
        vars(dataset).update(transform=own_tf, target_transform=None, loader=load, **attributes)
        yield name, dataset


def load(path: str) -> Image.Image:
    """What torchvision's own loader does."""
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def of_other_libraries(root: Path, tf: Any) -> Iterator[tuple[str, Any]]:
    """Classes of libraries that need not be installed."""
    try:
        import monai.data
        import monai.transforms

        scale = monai.transforms.Compose([monai.transforms.ScaleIntensity(), monai.transforms.Rotate90()])
        arrays = [torch.rand(1, 8, 8) for _ in range(6)]
        yield "monai Dataset", monai.data.Dataset(arrays, scale)
        yield "monai CacheDataset", monai.data.CacheDataset(arrays, scale, progress=False)
        yield "monai ArrayDataset", monai.data.ArrayDataset(arrays, scale, labels=arrays)
    except ModuleNotFoundError:
        pass
    try:
        import timm.data
    except ModuleNotFoundError:
        return
    yield "timm ImageDataset", timm.data.ImageDataset(str(root / "folder"), transform=tf)


def seed() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, Image.Image):
        return left.tobytes() == right.tobytes()
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def explore(function: Any, dataset: Any) -> tuple[int, int, int]:
    """Cuts compared, cuts that gave another sample, and cuts refused, looked into as deep as it goes."""
    opened: set[Any] = set()
    while True:
        observer = Observer(opened)
        observed(observer, function, dataset)
        more = {address for address, cost in observer.costs.items() if cost.can_enter or cost.is_loop} - opened
        if not more or len(opened) > 50:
            break
        opened |= more
    filler = Observer(opened, list(observer.costs), LIMIT)
    for _ in range(LIMIT + 1):
        sample = observed(filler, function, dataset)
    wrong = 0
    filled = [address for address, pool in filler.pools.items() if len(pool) and address not in filler.refused]
    for address in filled:
        server = Server(filler.pools[address], filler.chains[address], resume=True)
        seed()
        wrong += not same(server.run((dataset, 1)), sample)
    return len(filled), wrong, len(filler.refused)


def observed(observer: Observer, function: Any, dataset: Any) -> Any:
    seed()
    expected = dataset[1]
    seed()
    sample = observer.run(function, (dataset, 1))
    observer.close()
    assert same(sample, expected), "watching changes the sample"
    return sample


def kinds() -> list[type]:
    """All data set classes of torchvision with a `__getitem__` of their own, and those of torch."""
    found = [getattr(torchvision.datasets, name) for name in torchvision.datasets.__all__]
    torch_kinds = [Subset, ConcatDataset, TensorDataset, StackDataset]
    return [*torch_kinds, *(kind for kind in found if inspect.isclass(kind) and issubclass(kind, Dataset))]


def row(kind: type) -> tuple[str, str, str]:
    function = inspect.getattr_static(kind, "__getitem__", None)
    try:
        parts = split(function)
    except Unsplittable as refusal:
        return kind.__name__, "-", str(refusal)
    return kind.__name__, str(len(parts.units)), f"{Path(parts.filename).name}:{function.__code__.co_firstlineno}"


def main(show: Callable[[Any], None]) -> int:
    """Print both tables; 1 if a cut gave another sample, or if too few classes could be cut."""
    table = Table("class", "units", "where, or why not", title="Taken apart")
    for kind in kinds():
        table.add_row(*row(kind))
    show(table)
    checked = Table("class", "cuts compared", "differ", "refused", title="Cut and resumed")
    differ, cut = 0, set()
    with tempfile.TemporaryDirectory() as root:
        for name, dataset in built(Path(root)):
            if dataset is None:
                continue
            compared, wrong, refused = explore(type(dataset).__getitem__, dataset)
            differ += wrong
            if compared and not wrong:
                cut.add(type(dataset))
            checked.add_row(name, str(compared), str(wrong), str(refused))
    show(checked)
    is_enough = len(cut) >= FEWEST_CLASSES and not differ
    functions = {kind.__getitem__ for kind in cut}
    show(
        f"{len(cut)} classes with {len(functions)} different functions are cut and give the same sample, {differ} cuts "
        f"give another; bound {FEWEST_CLASSES} and 0: {'holds' if is_enough else 'FAILS'}"
    )
    return int(not is_enough)


if __name__ == "__main__":
    sys.exit(main(Console(width=120).print))
