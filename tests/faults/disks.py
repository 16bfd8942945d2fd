"""Small file systems of their own for tests that fill them up or cut them off; whoever cannot mount skips."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

ROOTLESS = "needs root to mount a tmpfs | run as root"
LOOPLESS = "needs a loop device and mkfs.{kind} | run as root where /dev/loop-control is, apt install {package}"
PACKAGES = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}
IMAGE_MIB = {"ext4": 64, "xfs": 320}  # xfs makes none below 300; sparse files
SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN: what `xfs_io -x -c shutdown` asks of xfs, and ext4 understands
WITHOUT_LOG = struct.pack("<I", 2)  # what is not on the disk now never gets there


def run(*command: object) -> bool:
    try:
        return subprocess.run(list(map(str, command)), capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip(ROOTLESS)


def mount_tmpfs(disk: Path, *options: str) -> None:
    need_root()
    disk.mkdir(exist_ok=True)
    if not run("mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", disk):
        pytest.skip(ROOTLESS)


def mount_image(kind: str, disk: Path, *, mib: int | None = None) -> Path:
    """A new file system of this kind in a file beside the directory it is mounted on; the file."""
    need_root()
    image = disk.with_name(f"{disk.name}.{kind}")
    with image.open("wb") as file:
        file.truncate((mib or IMAGE_MIB[kind]) << 20)
    quiet = ("-q", "-m", "0") if kind == "ext4" else ("-q",)
    if not run(f"mkfs.{kind}", *quiet, image) or not again(image, disk):
        pytest.skip(LOOPLESS.format(kind=kind, package=PACKAGES[kind]))
    return image


def again(image: Path, disk: Path) -> bool:
    """Mounts an image that was made before, as the machine does when it starts again."""
    disk.mkdir(exist_ok=True)
    return run("mount", "-o", "loop", image, disk)


def unmount(disk: Path) -> None:
    assert run("umount", disk) or run("umount", "-l", disk)


def cut_off(disk: Path) -> None:
    """The end of a file system as a power cut ends it: nothing in flight arrives."""
    fd = os.open(disk, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, WITHOUT_LOG)
    finally:
        os.close(fd)
