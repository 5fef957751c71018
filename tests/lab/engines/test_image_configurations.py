"""A real registry's answers about the lab's images reach the lock; needs no lab that runs."""

from __future__ import annotations

import platform
from pathlib import Path

from lab.core.state import open_lab
from lab.images.image_content import TAGS
from lab.images.images import image_registry
from lab.images.registry import running_registry
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import ImageItem
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.registry import resolve_image


def test_entry_point_and_cuda_of_every_image_are_pinned(tmp_path: Path) -> None:
    tags = [tag for tag in TAGS if not tag.foreign]
    assert {tag.entrypoint[:1] for tag in tags} >= {(), ("vllm",)}
    with running_registry(image_registry(open_lab().cache, print), tmp_path) as address:
        network = Network(Sources(registries={}, plain_registries=(address,)))
        pins = [
            resolve_image(
                ImageItem(f"{address}/{tag.repository}:{tag.tag}", platform.machine()), network
            )
            for tag in tags
        ]
    cuda = ["" if tag.program == "open-webui" else tag.cuda for tag in tags]
    assert [pin.entrypoint for pin in pins] == [tag.entrypoint for tag in tags]
    assert [pin.cuda for pin in pins] == cuda
