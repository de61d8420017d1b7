"""The on-disk cache of compiled kernels: entries prove themselves or are rebuilt, and any failure means no cache."""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from convloom import settings
from convloom.errors import IllegalProblem
from convloom.runtime.build_once import BuildOnce

_MAGIC = b"convloom-kernel-2\n"
_HEADER = struct.Struct(
    "<32s32sQQQQ"
)  # digest of the key, digest of all after the header, lengths: name, key, log, payload
_SUFFIX = ".kernel"
_TEMPORARY = ".part"
_STALE_SECONDS = 3600.0
_KEEP_FRACTION = 0.8


@dataclass(frozen=True)
class CacheKey:
    """What an entry must match: a name for people, and all bytes that the payload was made from."""

    name: str
    material: bytes

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the material."""
        return hashlib.sha256(self.material).digest()


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One entry for listings: file, kernel name (None if damaged), bytes, time of last use (epoch seconds)."""

    path: Path
    name: str | None
    nbytes: int
    used: float


class DiskCache:
    """Compiled kernels in one directory, shared by any number of processes and threads.

    An entry is a file written elsewhere, flushed and renamed into place. It carries its whole key and a digest:
    whatever is damaged, truncated or foreign is a miss and gets overwritten. A directory that cannot be used costs one
    warning.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory = directory / "kernels"
        self.limit = limit
        self._lock = threading.Lock()
        self._estimate: int | None = None
        self._warned = False

    def path(self, key: CacheKey) -> Path:
        """The file of a key."""
        return self.directory / (key.digest.hex() + _SUFFIX)

    def get(self, key: CacheKey) -> tuple[bytes, str] | None:
        """(payload, log) of a sound entry with exactly this key, else None."""
        if not self.limit:
            return None
        path = self.path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", error)
            return None
        entry = _decode(content)
        if entry is None or entry[1] != key.material:
            return None
        with suppress(OSError):  # the time of last use only serves pruning
            os.utime(path)
        return entry[3], entry[2]

    def put(self, key: CacheKey, payload: bytes, log: str) -> None:
        """Stores an entry; on any failure of the file system the cache stays as it was."""
        content = _encode(key, payload, log)
        if len(content) > self.limit:
            return
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_atomically(self.path(key), content)
            self._account(len(content))
        except OSError as error:
            self._warn("written", error)

    def open(self) -> None:
        """Makes the directory if there is none; IllegalProblem if it cannot be made or listed."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.listdir(self.directory)
        except OSError as error:
            raise IllegalProblem(
                f"the kernel cache must be a directory; {self.directory} gave {error}; correct CONVLOOM_CACHE_DIR"
            ) from error

    def entries(self) -> list[CacheEntry]:
        """Every entry, the least recently used first."""
        found = [entry for path in self._files() if path.suffix == _SUFFIX and (entry := _inspect(path))]
        return sorted(found, key=lambda entry: entry.used)

    def prune(self, limit: int) -> list[CacheEntry]:
        """Removes damaged entries, leftovers of dead writers, then the least recently used down to `limit` bytes."""
        self._remove_leftovers()
        entries = self.entries()
        total = sum(entry.nbytes for entry in entries)
        removed: list[CacheEntry] = []
        for entry in sorted(entries, key=lambda entry: entry.name is not None):
            if entry.name is not None and total <= limit:
                break
            with suppress(OSError):  # another process pruned it, or may not
                entry.path.unlink()
                removed.append(entry)
                total -= entry.nbytes
        with self._lock:
            self._estimate = total
        return removed

    def _remove_leftovers(self) -> None:
        for path in self._files():
            with suppress(OSError):
                if path.suffix == _TEMPORARY and time.time() - path.stat().st_mtime > _STALE_SECONDS:
                    path.unlink()

    def _account(self, nbytes: int) -> None:
        with self._lock:
            if self._estimate is None:
                self._estimate = sum(map(_size, self._files()))
            else:
                self._estimate += nbytes
            full = self._estimate > self.limit
        if full:
            self.prune(int(self.limit * _KEEP_FRACTION))

    def _warn(self, action: str, error: OSError) -> None:
        with self._lock:
            if self._warned:
                return
            self._warned = True
        warnings.warn(
            f"the kernel cache must be a directory that can be {action}; {self.directory} gave {error}; kernels are "
            "compiled again each time until CONVLOOM_CACHE_DIR names a usable one",
            RuntimeWarning,
            stacklevel=2,
        )

    def _files(self) -> Iterator[Path]:
        try:
            names = os.listdir(self.directory)
        except OSError:
            return
        for name in names:
            if name.endswith((_SUFFIX, _TEMPORARY)):
                yield self.directory / name


def _encode(key: CacheKey, payload: bytes, log: str) -> bytes:
    parts = [key.name.encode(), key.material, log.encode(), payload]
    body = b"".join(parts)
    lengths = [len(part) for part in parts]
    digest = hashlib.sha256(struct.pack("<4Q", *lengths) + body).digest()
    return _MAGIC + _HEADER.pack(key.digest, digest, *lengths) + body


def _decode(content: bytes) -> tuple[str, bytes, str, bytes] | None:
    """(name, key material, log, payload) of an entry's bytes; None if anything about them is wrong."""
    start = len(_MAGIC) + _HEADER.size
    if not content.startswith(_MAGIC) or len(content) < start:
        return None
    key_digest, digest, *lengths = _HEADER.unpack_from(content, len(_MAGIC))
    body = content[start:]
    if sum(lengths) != len(body) or hashlib.sha256(struct.pack("<4Q", *lengths) + body).digest() != digest:
        return None
    ends = list(accumulate(lengths))
    name, material, log, payload = (body[end - length : end] for end, length in zip(ends, lengths, strict=True))
    if hashlib.sha256(material).digest() != key_digest:
        return None
    return name.decode(errors="replace"), material, log.decode(errors="replace"), payload


def _inspect(path: Path) -> CacheEntry | None:
    """The listing of one file; None if it has gone."""
    try:
        status = path.stat()
        entry = _decode(path.read_bytes())
    except OSError:
        return None
    return CacheEntry(path, entry[0] if entry else None, status.st_size, status.st_mtime)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _write_atomically(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(suffix=_TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


_caches: BuildOnce[tuple[Path, int], DiskCache] = BuildOnce()


def current_cache() -> DiskCache:
    """The cache that the settings name."""
    now = settings.current()
    return _caches.get((now.cache_dir, now.cache_limit), lambda key: DiskCache(*key))
