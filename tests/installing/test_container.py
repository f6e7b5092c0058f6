"""The Containerfile: each stage's steps run in a new Debian system, and the image's command mounts.

The tests use no image registry, because debootstrap makes the same Debian system.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.installing.conftest import CCACHE, ROOT, run_compiling

pytestmark = [pytest.mark.fuse, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(2700)]


class Step(NamedTuple):
    """One instruction, for example `RUN`, and its arguments."""

    name: str
    text: str


def steps(text: str) -> list[Step]:
    """Return a Containerfile's instructions, with continued lines joined."""
    lines = re.sub(r"(?m)^#.*\n", "", text).replace("\\\n", " ").splitlines()
    return [Step(*line.split(maxsplit=1)) for line in lines if line.strip()]


STEPS = steps((ROOT / "Containerfile").read_text())
STAGES = [number for number, step in enumerate(STEPS) if step.name == "FROM"]


class Image:
    """A Debian system that the steps of a stage change."""

    def __init__(self, tree: Path, changes: Path) -> None:
        self.tree, self.changes, self.folder = tree, changes, "/"

    def at(self, path: str) -> Path:
        """Return where `path` of the image is on this machine."""
        return self.changes / "upper" / path.lstrip("/")

    def run(self, line: str) -> str:
        """Return the output of a command line that runs in the image."""
        return run_compiling(self.tree, self.changes, f"cd {self.folder}; {line}")

    def step(self, step: Step, stages: dict[str, Image]) -> None:
        """Run an instruction, unless the instruction only describes the image."""
        match step.name, shlex.split(step.text):
            case "RUN", _:
                self.run(step.text)
            case "WORKDIR", [folder]:
                self.folder = folder
            case "COPY", [".", target]:
                context(self.at(target))
            case "COPY", [stage, source, target] if stage.startswith("--from="):
                shutil.copytree(stages[stage.removeprefix("--from=")].at(source), self.at(target))
            case (("VOLUME" | "ENTRYPOINT" | "CMD"), _):
                pass
            case other:
                pytest.fail(f"a step that this test does not know: {other}")


def context(folder: Path) -> None:
    """Write the build context: the files that git tracks and, to save time, this checkout's Cython output."""
    folder.mkdir(parents=True)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(
        ["rsync", "--archive", "--from0", "--files-from=-", f"{ROOT}/", folder], input=files, check=True
    )
    if (ROOT / "build" / "cython").is_dir():
        shutil.copytree(ROOT / "build" / "cython", folder / "build" / "cython")


def build_packages(stage: list[Step]) -> list[str]:
    """Return the packages that a stage installs from Debian's archive."""
    commands = [command for step in stage if step.name == "RUN" for command in step.text.split("&&")]
    lists = [command.split("--no-install-recommends")[1] for command in commands if " install " in command]
    return [name for text in lists for name in text.split() if "/" not in name]


@pytest.fixture(scope="module")
def image(fresh, tmp_path_factory) -> Image:
    """The image of the last stage."""
    stages: dict[str, Image] = {}
    for first, end in zip(STAGES, [*STAGES[1:], len(STEPS)], strict=True):
        words = STEPS[first].text.split()
        assert words[0].startswith("docker.io/library/debian:")
        # The same packages as the stage installs, made once: installing a compiler takes longer than the build.
        tools = build_packages(STEPS[first:end])
        tree = fresh((*tools, CCACHE) if tools else ())
        current = stages[words[-1]] = Image(tree, tmp_path_factory.mktemp("stage"))
        for step in STEPS[first + 1 : end]:
            current.step(step, stages)
    return current


def test_the_image_mounts(image):
    """With a FUSE device and a capability, the image's own command mounts, and unmounts when it is terminated."""
    entry, command = (json.loads(step.text) for step in STEPS if step.name in {"ENTRYPOINT", "CMD"})
    mounts = shlex.join([*entry, *command])
    said = image.run(f"""
        mkdir -p /data
        {mounts} &
        until grep -q ' /mnt fuse' /proc/mounts; do kill -0 $!; done
        mkdir /mnt/orders
        echo hello >> /mnt/orders/0/log
        cat /mnt/orders/0/log
        kill $!
        wait $!
        {shlex.join(entry)} cat orders/0
    """)
    assert "hello\nhello\n" == said


def test_the_image_keeps_no_tools(image):
    """The image has neither build tools nor the sources of the package that was installed."""
    assert "" == image.run(
        "find /packages /sources /var/lib/apt/lists -type f 2> /dev/null; type gcc 2> /dev/null || true"
    )


def test_what_a_build_does_not_need_stays_outside():
    """The build context does not contain the checkout's environment, its history or build results."""
    ignored = (ROOT / ".containerignore").read_text().splitlines()
    assert {".git", ".venv", "build", "data", "dist", "mnt", "**/*.so"} <= set(ignored)
