"""To decode of a picture only what is kept of it."""

from __future__ import annotations

import re

from unstarve import estimate
from unstarve.recording import Recording, Stage, find_stage
from unstarve.remedies.facts import calls_in, stages_inside
from unstarve.report import Culprit, Estimate, Remedy, Report

PIXEL_SHARE = 0.45
"""Share of decoding a JPEG that goes with the pixels that are decoded; the rest is undoing the entropy code, which cannot
be skipped. At 1/8 of each side Pillow took 0.3 to 0.66 of the CPU time of a full decode, at 0.5 to 3 bits a pixel."""

MOST_KEPT = 0.8
"""A crop that keeps more of the picture than this is not worth decoding apart."""

DECODABLE = ("decode", "read", "code")
"""Kinds of stages that may hold a call which decodes a picture."""

_PICTURES = re.compile(
    r"Image\.open|pil_loader|default_loader|\.convert\(|decode_(jpeg|image|png)|read_image|imdecode|imread|TurboJPEG"
)
"""Calls that decode pictures."""
_OPENCV = re.compile(r"imdecode|imread")
_PILLOW = re.compile(r"Image\.open|pil_loader|default_loader|\.convert\(")
_CROP = re.compile(r"(?<!five)(?<!ten)crop(?!_?and)", re.IGNORECASE)
_RESIZE = re.compile(r"resize|thumbnail|smallestmaxsize|longestmaxsize|interpolate", re.IGNORECASE)
_CONVERTS = re.compile(
    r"convert|to_?(image|tensor|pil|dtype|float|rgb)|asarray|from_numpy|permute|cvtcolor|(^|\.)array$", re.IGNORECASE
)
"""Transforms that change how pixels are represented, and leave them where they are."""


def decode_less(recording: Recording, report: Report, culprit: Culprit) -> Remedy | None:
    """To decode of a picture only what the transform behind it keeps."""
    stage = find_stage(recording.stages, culprit.stage)
    if stage is None or culprit.resource == "wait" or culprit.kind not in DECODABLE:
        return None
    calls = calls_in(recording, stage)
    follower = _follower(recording, stage) if _PICTURES.search(calls) else None
    if follower is None:
        return None
    kept = _kept(recording, follower)
    if _CROP.search(follower.name):
        return _crop_only(culprit, follower, None if "resized" in follower.name.lower() else kept)
    return _draft(culprit, follower, kept, calls)


def _follower(recording: Recording, stage: Stage) -> Stage | None:
    """The crop or resize that gets what the stage decodes, with nothing but conversions and trifles between; None where
    anything else comes first."""
    inside = {stage.id, *(each.id for each in stages_inside(recording, stage))}
    containers = {each.parent for each in recording.stages}
    behind = recording.stages[recording.stages.index(stage) + 1 :]
    for later in (each for each in behind if each.id not in inside):
        if _CROP.search(later.name) or _RESIZE.search(later.name):
            return later
        is_trifle = later.kind != "transform" and estimate.mean(later.wall_ns) < 0.05 * estimate.mean(stage.wall_ns)
        if later.id not in containers and not is_trifle and not _CONVERTS.search(later.name):
            return None
    return None


def _kept(recording: Recording, follower: Stage) -> float | None:
    """Share of the pixels that are left behind a transform, by the bytes on both sides of it."""
    ends = [head.after for head in recording.heads]
    position = ends.index(follower.id) if follower.id in ends else 0
    before = recording.heads[position - 1].bytes_per_sample if position else 0
    return recording.heads[position].bytes_per_sample / before if before else None


def _crop_only(culprit: Culprit, follower: Stage, kept: float | None) -> Remedy | None:
    if kept is not None and kept > MOST_KEPT:
        return None
    share = f" It keeps {kept:.0%} of the pixels." if kept is not None else ""
    return Remedy(
        id="decode-crop",
        advice=(
            f"`{follower.name}` throws away what `{culprit.name}` decoded.{share} Where files are JPEG, choose the crop by "
            "the size in their header and decode only that: PIL and `torchvision.io` cannot, TurboJPEG can cut it out of the "
            "compressed picture first (at multiples of its blocks of 8 or 16 pixels)."
        ),
        patch="import turbojpeg\njpeg = turbojpeg.TurboJPEG()\nimage = jpeg.decode(jpeg.crop(data, left, top, width, height))",
        predicted_gain=None if kept is None else _fewer_pixels(culprit, kept),
        about=culprit.stage,
    )


def _draft(culprit: Culprit, follower: Stage, kept: float | None, calls: str) -> Remedy | None:
    """To decode at a fraction of the size, where a resize would make the picture smaller anyway."""
    factor = None if kept is None else next((each for each in (8, 4, 2) if kept <= 1 / each**2), 1)
    if factor == 1:
        return None
    share = "" if kept is None else f" It keeps {kept:.1%} of the pixels, so 1/{factor} of each side is enough."
    return Remedy(
        id="decode-smaller",
        advice=(
            f"`{follower.name}` makes smaller what `{culprit.name}` decodes whole.{share} A JPEG can be decoded at 1/2, 1/4 or "
            "1/8 of its size, in less time; the pixels then differ a little from those of a full decode."
        ),
        patch=_reduced(calls, factor or 2),
        predicted_gain=None if factor is None else _fewer_pixels(culprit, 1 / factor**2),
        about=culprit.stage,
    )


def _reduced(calls: str, factor: int) -> str:
    if _OPENCV.search(calls):
        return f"image = cv2.imdecode(data, cv2.IMREAD_REDUCED_COLOR_{factor})"
    if _PILLOW.search(calls):
        return 'image = Image.open(file)\nimage.draft("RGB", (width, height))  # the least size wanted; before the pixels are used'
    return "image = simplejpeg.decode_jpeg(data, min_height=height, min_width=width)"


def _fewer_pixels(culprit: Culprit, kept: float) -> Estimate:
    """The loop's speed-up if only this share of the pixels were decoded: computed, not tried."""
    saved = estimate.of_part(culprit.gain, PIXEL_SHARE * (1 - kept))
    return estimate.computed(saved.value, down=0.5, up=1.3)
