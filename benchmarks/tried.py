"""Public training scripts, run unmodified under `unstarve run`, and what it says about them (docs/tried.md).

The scripts are not part of this project: check them out yourself and give their directories.

    git clone https://github.com/pytorch/examples                        # --imagenet      examples
    git clone https://github.com/pytorch/vision                          # --vision        vision
    git clone https://github.com/Lightning-AI/pytorch-lightning          # --lightning     pytorch-lightning
    git clone https://github.com/huggingface/transformers                # --transformers  transformers
    git clone https://github.com/huggingface/pytorch-image-models        # --timm          pytorch-image-models
    pip install "lightning[pytorch-extra]" "transformers<4.57" "datasets<4.5" accelerate evaluate timm
    pip install scikit-image scikit-learn
    python benchmarks/tried.py --data /tmp/tried-data --imagenet examples …

The data are real photographs, the ones that scikit-image and scikit-learn ship, cropped at random and encoded again
as JPEG into an image folder; the text is generated. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import random
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PHOTOGRAPHS = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "cat": ("skimage", "data/chelsea.png"),
    "coffee": ("skimage", "data/coffee.png"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "motorcycle": ("skimage", "data/motorcycle_left.png"),
    "rocket": ("skimage", "data/rocket.jpg"),
    "temple": ("sklearn", "datasets/images/china.jpg"),
}
"""Class of the image folder -> the photograph it is cut from: package and path in it."""

SIZE = (500, 400)
"""Width and height of every picture, close to the mean of ImageNet."""

WORDS = ("loader", "batch", "worker", "queue", "sample", "step", "token", "epoch", "shard", "buffer", "page", "cache")
"""What the generated text is made of."""

OUTCOMES = {0: "verdict", 2: "usage", 3: "the script failed", 4: "no verdict"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One public script and how it is run."""

    name: str
    """Option that gives its checkout."""
    title: str
    """Its heading, and the stem of its files."""
    origin: str
    """Where the script comes from."""
    script: str
    """Path of the script in the checkout."""
    arguments: str
    """Its own arguments; `{data}` stands for the directory of the data."""
    options: str = ""
    """Options of `unstarve run` of its own."""
    about: str
    """What kind of loop and loader it has."""


CASES = (
    Case(
        name="imagenet",
        title="imagenet",
        origin="pytorch/examples",
        script="imagenet/main.py",
        arguments="{data}/images -a shufflenet_v2_x0_5 -b 8 -j 2 --epochs 20 --lr 0.001",
        about="A plain loop; ImageFolder, torchvision transforms, a validation loader after each epoch.",
    ),
    Case(
        name="imagenet",
        title="imagenet-simulated",
        origin="pytorch/examples",
        script="imagenet/main.py",
        options="--simulate-step 20",
        arguments="{data}/images -a shufflenet_v2_x0_5 -b 8 -j 2 --epochs 20 --lr 0.001",
        about="The same loader, pulled against a simulated accelerator that takes 20 ms for a batch of 8.",
    ),
    Case(
        name="vision",
        title="vision",
        origin="pytorch/vision",
        script="references/classification/train.py",
        arguments="--data-path {data}/images --model mobilenet_v3_small --device cpu -b 16 -j 2 --train-crop-size 96 "
        "--val-crop-size 96 --val-resize-size 112 --epochs 20 --lr 0.01 --auto-augment ta_wide --mixup-alpha 0.2",
        about="A loop behind a logging generator; TrivialAugment, mixup in a lambda as `collate_fn`.",
    ),
    Case(
        name="lightning",
        title="lightning",
        origin="Lightning-AI/pytorch-lightning",
        script="examples/pytorch/domain_templates/imagenet.py",
        arguments="fit --model.data_path {data}/images --model.arch shufflenet_v2_x0_5 --model.batch_size 8 "
        "--model.workers 2 --trainer.accelerator cpu --trainer.devices 1 --trainer.max_epochs 20",
        about="Lightning's Trainer behind its command line; the loop is inside the library.",
    ),
    Case(
        name="transformers",
        title="transformers",
        origin="huggingface/transformers",
        script="examples/pytorch/language-modeling/run_clm.py",
        arguments="--model_type gpt2 --tokenizer_name {data}/tokenizer "
        "--config_overrides n_embd=64,n_layer=2,n_head=2,vocab_size=512,n_positions=128 "
        "--train_file {data}/text/train.txt --validation_file {data}/text/val.txt --do_train --block_size 64 --use_cpu "
        "--per_device_train_batch_size 8 --dataloader_num_workers 2 --num_train_epochs 20 --output_dir {data}/clm "
        "--save_strategy no --report_to none",
        about="The Hugging Face Trainer over a `datasets` table; batches are dictionaries of tensors.",
    ),
    Case(
        name="timm",
        title="timm",
        origin="huggingface/pytorch-image-models",
        script="train.py",
        arguments="--data-dir {data}/images --model mobilenetv3_small_050 --num-classes 7 -b 16 -j 2 --img-size 96 "
        "--aa rand-m9-mstd0.5 --device cpu --epochs 20 --lr 0.01 --output {data}/timm",
        about="timm's own loader wrapped around a DataLoader with a collate function of its own; RandAugment.",
    ),
)


# The data ----------------------------------------------------------------------------------------


def make_data(data: Path) -> None:
    """Pictures, text and a tokenizer under `data`; what is there already is kept."""
    if not (data / "images").is_dir():
        _make_images(data / "images", per_class={"train": 180, "val": 24})
    if not (data / "text").is_dir():
        _make_text(data / "text", lines={"train": 4000, "val": 200})
    if not (data / "tokenizer").is_dir() and importlib.util.find_spec("transformers"):
        _make_tokenizer(data)


def _make_images(folder: Path, per_class: dict[str, int]) -> None:
    from PIL import Image

    draw = random.Random(0)
    for name, photograph in PHOTOGRAPHS.items():
        picture = Image.open(_package_file(*photograph)).convert("RGB")
        for split, count in per_class.items():
            target = folder / split / name
            target.mkdir(parents=True)
            for number in range(count):
                crop = picture.resize(SIZE, Image.Resampling.BICUBIC, _random_box(*picture.size, draw))
                crop.save(target / f"{number:04d}.jpg", quality=draw.randint(85, 95))


def _package_file(package: str, path: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(f"The photographs come from {package}: pip install scikit-image scikit-learn")
    return Path(spec.origin).parent / path


def _random_box(width: int, height: int, draw: random.Random) -> tuple[int, int, int, int]:
    share = draw.uniform(0.6, 1.0)
    across, down = int(width * share), int(height * share)
    left, top = draw.randint(0, width - across), draw.randint(0, height - down)
    return left, top, left + across, top + down


def _make_text(folder: Path, lines: dict[str, int]) -> None:
    draw = random.Random(0)
    folder.mkdir(parents=True)
    for split, count in lines.items():
        text = (" ".join(draw.choices(WORDS, k=draw.randint(5, 40))) + "." for _ in range(count))
        (folder / f"{split}.txt").write_text("\n".join(text) + "\n", encoding="utf-8")


def _make_tokenizer(data: Path) -> None:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([str(data / "text/train.txt")], vocab_size=512, special_tokens=["<|endoftext|>"])
    end = "<|endoftext|>"
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token=end, bos_token=end, unk_token=end)
    fast.save_pretrained(data / "tokenizer")


# The runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    case: Case
    code: int
    """Exit code of `unstarve run`."""
    wall_s: float
    """Seconds from start to end of the process, imports and the making of the model included."""
    report: dict[str, Any] | None
    """The report as JSON; None where none was written."""
    message: str
    """Last lines of its stderr."""


def run_case(case: Case, checkout: Path, data: Path, budget_s: float) -> Outcome:
    """Run the script of `case` as it is under `unstarve run`."""
    place = data / "reports"
    place.mkdir(exist_ok=True)
    written = place / f"{case.title}.json"
    written.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "unstarve", "run", "--quiet", "--budget", f"{budget_s:g}", "--json", str(written)),
        *(*shlex.split(case.options), str(checkout / case.script), *shlex.split(case.arguments.format(data=data))),
    ]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=place, env=_environment(), capture_output=True, text=True, timeout=900)
    wall_s = time.perf_counter() - began
    (place / f"{case.title}.out").write_text(done.stdout)
    (place / f"{case.title}.err").write_text(done.stderr)
    report = json.loads(written.read_text()) if written.exists() else None
    message = "\n".join(done.stderr.strip().splitlines()[-6:])
    return Outcome(case=case, code=done.returncode, wall_s=wall_s, report=report, message=message)


def _environment() -> dict[str, str]:
    # One thread for the step: two that spin beside two workers on two cores make it eight times slower, and erratic.
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


# The page ----------------------------------------------------------------------------------------


def page(outcomes: list[Outcome], budget_s: float, roots: tuple[str, ...], note: str | None = None) -> str:
    """What docs/tried.md says; `roots` are the directories cut off from paths in it."""
    text = "\n".join(_page_lines(outcomes, budget_s, note)) + "\n"
    for root in roots:
        text = text.replace(f"{root}/", "")
    return text


def _page_lines(outcomes: list[Outcome], budget_s: float, note: str | None) -> Iterator[str]:
    yield "# Tried on other people's scripts"
    yield ""
    yield "Public training scripts, run as they are: no edit, no annotation, no wrapper. `python benchmarks/tried.py`"
    yield "runs them and writes this page; it also says where the scripts come from and makes the data."
    yield ""
    what_is_shown = (
        "What is shown is that the tool finds the loop in code it has never seen, names source lines in it, and ends; "
        "the rates are those of this machine on that day, shared with others."
    )
    yield from textwrap.wrap(f"**How to read it.** {_machine()} {what_is_shown}", 120)
    if note:
        yield from ("", *textwrap.wrap(note, 120))
    yield ""
    yield "| script | outcome | bound | loop → possible, steps/s | seconds |"
    yield "| --- | --- | --- | --- | --- |"
    for outcome in outcomes:
        yield _row(outcome)
    for outcome in outcomes:
        yield from _section(outcome, budget_s)


def _machine() -> str:
    import torch

    what = f"torch {torch.__version__} on {os.cpu_count()} CPUs ({platform.machine()})"
    if torch.accelerator.is_available():
        return f"The machine has an accelerator ({torch.accelerator.current_accelerator()}) and {what}."
    return (
        f"The machine has no accelerator ({what}): the step is what the CPU does, and it shares the CPUs with the "
        "loader's workers. Models are small so that the step does not hide the input, and it gets one thread "
        "(`OMP_NUM_THREADS=1`), without which its threads and the workers fight over the cores."
    )


def _row(outcome: Outcome) -> str:
    report = outcome.report or {}
    bound = report.get("verdict", {}).get("bound", "–") if outcome.code == 0 else "–"
    rates = " → ".join(_rate(report.get(key)) for key in ("baseline", "ceiling"))
    link = f"[{outcome.case.origin}](#{outcome.case.title}) `{outcome.case.script}`"
    return f"| {link} | {_ending(outcome)} | {bound} | {rates} | {outcome.wall_s:.0f} |"


def _ending(outcome: Outcome) -> str:
    return OUTCOMES.get(outcome.code, f"exit code {outcome.code}")


def _rate(reading: dict[str, Any] | None) -> str:
    return "–" if not reading else f"{reading['steps_per_s']['value']:.2f}"


def _section(outcome: Outcome, budget_s: float) -> Iterator[str]:
    case = outcome.case
    yield from ("", f"## {case.title}", "", f"{case.about}", "")
    command = " ".join(filter(None, ("unstarve run --budget", f"{budget_s:g}", case.options, case.script)))
    yield from ("```", f"{command} \\", *_wrapped(case.arguments), "```", "")
    if outcome.code != 0 or outcome.report is None:
        yield f"No report: {_ending(outcome)}, after {outcome.wall_s:.0f} s."
        yield from ("", "```", outcome.message, "```")
        return
    yield f"> {outcome.report['verdict']['sentence']}"
    yield ""
    yield from _culprits(outcome.report)
    for caveat in outcome.report["caveats"]:
        yield f"- *Doubt:* {caveat['sentence']}"
    yield from ("", f"It took {outcome.wall_s:.0f} s; the budget of the experiment was {budget_s:g} s.")


def _wrapped(arguments: str) -> Iterator[str]:
    lines = textwrap.wrap(arguments.format(data="DATA"), 96, break_long_words=False, break_on_hyphens=False)
    yield from (f"    {line} \\" for line in lines[:-1])
    yield f"    {lines[-1]}"


def _culprits(report: dict[str, Any]) -> Iterator[str]:
    culprits = report["verdict"]["culprits"]
    if not culprits:
        yield from ("No culprit. The dearest stages of the input:", "", *_dearest_stages(report["stages"]), "")
        return
    yield from ("| culprit | kind | source | gain if it cost nothing |", "| --- | --- | --- | --- |")
    for culprit in culprits[:4]:
        gain = "{value:.2f} ({low:.2f}–{high:.2f})".format(**culprit["gain"])
        source = f"`{culprit['source']}`" if culprit["source"] else "–"
        yield f"| {_cell(culprit['name'])} | {culprit['kind']} | {source} | {gain} |"
    yield ""


def _dearest_stages(stages: list[dict[str, Any]]) -> Iterator[str]:
    opened = {stage["parent"] for stage in stages}
    timed = [stage for stage in stages if stage["wall_s_per_sample"] and stage["id"] not in opened]
    yield from ("| stage | kind | source | ms per sample |", "| --- | --- | --- | --- |")
    for stage in sorted(timed, key=lambda stage: -stage["wall_s_per_sample"])[:4]:
        source = f"`{stage['source']}`" if stage["source"] else "–"
        yield f"| {_cell(stage['name'])} | {stage['kind']} | {source} | {stage['wall_s_per_sample'] * 1e3:.2f} |"


def _cell(name: str) -> str:
    return textwrap.shorten(name, 60, placeholder=" …").replace("|", "\\|")


def main() -> None:
    """Run the cases whose checkouts were given and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, origin in {case.name: case.origin for case in CASES}.items():
        parser.add_argument(f"--{name}", type=Path, metavar="PATH", help=f"checkout of {origin}")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="where the data are, or are to be made")
    parser.add_argument("--budget", type=float, default=30.0, metavar="SECONDS", help="time for each experiment")
    parser.add_argument("--note", metavar="TEXT", help="a sentence for the page, such as which versions these are")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs/tried.md", metavar="FILE")
    options = parser.parse_args()
    data = options.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    make_data(data)
    outcomes, roots = [], [str(data), sys.prefix]
    for case in CASES:
        checkout: Path | None = getattr(options, case.name)
        if checkout is None:
            continue
        outcomes.append(run_case(case, checkout.resolve(), data, options.budget))
        roots.append(str(checkout.resolve()))
        print(f"{case.title}: {_ending(outcomes[-1])}, {outcomes[-1].wall_s:.0f} s", file=sys.stderr)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(page(outcomes, options.budget, tuple(roots), options.note), encoding="utf-8")


if __name__ == "__main__":
    main()
