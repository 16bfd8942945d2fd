"""What a partition may forget: whole data pages, oldest first, as a policy says.

    | page 0 | page 1 | page 2 | page 3 ...        the page of the newest record always stays
              ^ new first record: the first whose head lies on a page that is kept

Invariants
- nothing is given up that `unconsumed_from` still needs, unless the policy says so
- pages go only after a mark that no longer counts them is on the disk
- a data page that nobody maps is kept as a spare and used again: fresh memory costs ten times more at first touch
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from serai._core.records import RECORD_BYTES
from serai.log.format import SLOT_BYTES

if TYPE_CHECKING:
    from serai.log.folder import Folder
    from serai.log.store import PageFiles
    from serai.log.view import Bounds, Reading


@dataclass(frozen=True)
class Retention:
    """How long messages stay; None means without end."""

    age_ms: int | None = None
    bytes_max: int | None = None
    disk_used_max: float | None = None  # share of the file system, 0.0 to 1.0
    keep_unconsumed: bool = True


class Kept(NamedTuple):
    """Where a log begins after some pages are given up."""

    first: int
    first_record: int
    first_place: int
    begin: int


def first_kept(log: Reading, policy: Retention, *, now_ms: int, unconsumed_from: int | None) -> Kept | None:
    """The new beginning, None when nothing goes."""
    bounds = log.bounds()
    if bounds.first_record >= bounds.record_end:
        return None
    page_bytes = log.folder.page_bytes
    newest = log.trail.record(bounds.record_end - RECORD_BYTES)[2] // page_bytes
    oldest = log.trail.record(bounds.first_record)[2] // page_bytes
    kept = None
    for page in range(oldest, newest):
        after = _first_behind(log, bounds, (page + 1) * page_bytes)
        left, freed = (newest - page + 1) * page_bytes, (page - oldest) * page_bytes
        if not _may_go(log, policy, after, now_ms=now_ms, bytes_left=left, bytes_freed=freed):
            break
        if policy.keep_unconsumed and unconsumed_from is not None and after.first > unconsumed_from:
            break
        kept = after
    return kept


def _first_behind(log: Reading, bounds: Bounds, begin: int) -> Kept:
    at = log.trail.find_begin(begin, first=bounds.first_record, end=bounds.record_end)
    ordinal, place, start, _time = log.trail.record(at)
    return Kept(ordinal, at, place, start)


def _may_go(log: Reading, policy: Retention, after: Kept, *, now_ms: int, bytes_left: int, bytes_freed: int) -> bool:
    """Whether the page before `after` is too old or too much."""
    newest_on_it = log.trail.record(after.first_record - RECORD_BYTES)[3]
    if policy.age_ms is not None and newest_on_it < now_ms - policy.age_ms:
        return True
    if policy.bytes_max is not None and bytes_left > policy.bytes_max:
        return True
    if policy.disk_used_max is None:
        return False
    disk = os.statvfs(log.folder.path)
    used = (disk.f_blocks - disk.f_bavail) * disk.f_frsize - bytes_freed
    return used > policy.disk_used_max * disk.f_blocks * disk.f_frsize


def give_up(folder: Folder, kept: Kept) -> None:
    """Removes the pages that lie wholly before the new beginning."""
    _drop(folder.data_files, kept.begin // folder.page_bytes, keep=True)
    _drop(folder.slot_files, kept.first * SLOT_BYTES // folder.page_bytes, keep=False)
    _drop(folder.record_files, kept.first_record // folder.page_bytes, keep=False)


def _drop(files: PageFiles, first: int, *, keep: bool) -> None:
    for number in files.numbers():
        if number < first:
            files.give_up(number, keep=keep)
