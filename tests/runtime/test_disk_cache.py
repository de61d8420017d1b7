import multiprocessing
import os
import struct
import threading
import warnings

import pytest

from convloom import settings
from convloom.runtime import c_compiler, disk_cache
from convloom.runtime.cpu import CpuDevice
from convloom.runtime.disk_cache import CacheKey, DiskCache

KEY = CacheKey("k", b"compiler 1\noptions\ntext")


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "c", 2**20)


def damage_empty(content):
    return b""


def damage_truncated(content):
    return content[: len(content) - 3]


def damage_header_only(content):
    return content[:40]


def damage_one_bit_of_payload(content):
    return content[:-1] + bytes([content[-1] ^ 1])


def damage_lengths(content):
    start = len(disk_cache._MAGIC) + 64
    return content[:start] + struct.pack("<Q", 2**63) + content[start + 8 :]


def damage_foreign(content):
    return b"\x7fELF" + content[4:]


def damage_appended(content):
    return content + b"x"


DAMAGES = [
    damage_empty, damage_truncated, damage_header_only, damage_one_bit_of_payload, damage_lengths, damage_foreign,
    damage_appended,
]  # fmt: skip


def test_round_trip_and_miss(cache):
    assert cache.get(KEY) is None
    cache.put(KEY, b"\0payload", "log é")
    assert cache.get(KEY) == (b"\0payload", "log é")
    assert cache.get(CacheKey("k", KEY.material + b" ")) is None


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_a_miss_and_gets_replaced(cache, damage):
    cache.put(KEY, b"payload", "log")
    path = cache.path(KEY)
    path.write_bytes(damage(path.read_bytes()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get(KEY) is None
        assert [entry.name for entry in cache.entries()] == [None]
        cache.put(KEY, b"payload", "log")
    assert cache.get(KEY) == (b"payload", "log")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_built_again(axpby, damage, monkeypatch):
    CpuDevice().build(axpby())
    for entry in disk_cache.current_cache().entries():
        entry.path.write_bytes(damage(entry.path.read_bytes()))
    CpuDevice().build(axpby())
    assert {"axpby"} <= {entry.name for entry in disk_cache.current_cache().entries()}


def test_equal_digests_with_different_keys_do_not_mix(cache, monkeypatch):
    monkeypatch.setattr(CacheKey, "digest", property(lambda self: b"\1" * 32))
    cache.put(KEY, b"payload", "")
    assert cache.get(CacheKey("k", b"something else")) is None


def test_a_sound_entry_of_another_key_is_not_trusted(cache):
    other = CacheKey("k", b"for another machine")
    cache.put(other, b"foreign", "")
    cache.path(KEY).write_bytes(cache.path(other).read_bytes())
    assert cache.get(KEY) is None


def test_every_part_of_the_identity_is_in_the_key(axpby, monkeypatch):
    compiler = c_compiler.current_compiler()
    base = compiler.identity(axpby())
    others = [
        c_compiler.CCompiler("x", ("other",), compiler.options, compiler.version).identity(axpby()),
        c_compiler.CCompiler("x", compiler.command, ("-O0",), compiler.version).identity(axpby()),
        c_compiler.CCompiler("x", compiler.command, compiler.options, "version 99").identity(axpby()),
        compiler.identity(axpby(arch="another")),
    ]
    monkeypatch.setattr(c_compiler, "host_features", lambda: "another processor")
    others.append(compiler.identity(axpby()))
    assert len({base, *others}) == 6


def test_a_second_process_like_start_compiles_nothing(axpby, monkeypatch):
    CpuDevice().build(axpby())
    monkeypatch.setattr(c_compiler.CCompiler, "compile", None)
    CpuDevice().build(axpby())


def test_the_limit_drops_the_least_recently_used(tmp_path):
    cache = DiskCache(tmp_path, 10_000)
    keys = [CacheKey(f"k{n}", b"%d" % n) for n in range(9)]
    for age, key in enumerate(keys[:8]):
        cache.put(key, bytes(1000), "")
        os.utime(cache.path(key), (1000 + age, 1000 + age))
    assert cache.get(keys[0]) is not None  # now the most recently used
    cache.put(keys[8], bytes(3000), "")
    left = {entry.name for entry in cache.entries()}
    assert {"k0", "k8"} <= left
    assert not {"k1", "k2"} & left
    assert sum(entry.nbytes for entry in cache.entries()) <= 10_000


def test_an_entry_above_the_limit_is_not_kept(tmp_path):
    cache = DiskCache(tmp_path, 100)
    cache.put(KEY, bytes(1000), "")
    assert cache.entries() == []


def test_limit_zero_turns_the_cache_off(axpby, own_cache):
    with settings.scoped(cache_limit=0):
        CpuDevice().build(axpby())
    assert not own_cache.exists()


def test_prune_removes_damaged_entries_and_leftovers(cache):
    cache.put(KEY, b"payload", "")
    (cache.directory / "00.kernel").write_bytes(b"junk")
    old, young = cache.directory / "a.part", cache.directory / "b.part"
    for path in (old, young):
        path.write_bytes(b"")
    os.utime(old, (0, 0))
    assert [entry.name for entry in cache.prune(cache.limit)] == [None]
    assert sorted(path.name for path in cache.directory.iterdir()) == sorted(["b.part", cache.path(KEY).name])
    assert [entry.name for entry in cache.prune(0)] == ["k"]


def test_a_directory_that_cannot_exist_costs_one_warning(axpby, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with settings.scoped(cache_dir=tmp_path / "file" / "sub"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CpuDevice().build(axpby())
        CpuDevice().build(axpby(name="second"))
    assert len([item for item in caught if "CONVLOOM_CACHE_DIR" in str(item.message)]) == 1


@pytest.mark.parametrize("call", ["mkstemp", "replace", "fsync"])
def test_a_full_or_read_only_disk_is_no_error(axpby, monkeypatch, call):
    def refuse(*args, **kwargs):
        raise OSError(28, "No space left on device")

    module = disk_cache.tempfile if call == "mkstemp" else disk_cache.os
    cache = disk_cache.current_cache()
    monkeypatch.setattr(module, call, refuse)
    with pytest.warns(RuntimeWarning, match="No space left"):
        cache.put(KEY, b"payload", "")
    monkeypatch.undo()
    assert cache.get(KEY) is None
    assert list(cache.directory.iterdir()) == []


@pytest.mark.parametrize("error", [16, 2, 116])  # EBUSY, ENOENT, ESTALE: seen on network file systems
def test_a_failing_read_is_a_miss(cache, monkeypatch, error):
    cache.put(KEY, b"payload", "")

    def refuse(self):
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(type(cache.path(KEY)), "read_bytes", refuse)
        assert cache.get(KEY) is None
        assert cache.entries() == []
    assert cache.get(KEY) is not None


def _process(directory, barrier, sources, results):
    with settings.scoped(cache_dir=directory):
        barrier.wait()
        device = CpuDevice()
        results.put([device.build(source).source.name for source in sources])


def test_processes_share_one_new_directory(axpby, tmp_path):
    context = multiprocessing.get_context("spawn")
    count = 4
    barrier, results = context.Barrier(count), context.Queue()
    sources = [axpby(name=f"shared{n}") for n in range(3)]
    arguments = (tmp_path / "shared", barrier, sources, results)
    processes = [context.Process(target=_process, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    built = [results.get(timeout=50) for _ in range(count)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * count
    assert built == [["shared0", "shared1", "shared2"]] * count
    names = [entry.name for entry in DiskCache(tmp_path / "shared", 2**30).entries()]
    assert sorted(name for name in names if name != "convloom_probe") == ["shared0", "shared1", "shared2"]
    assert not list((tmp_path / "shared" / "kernels").glob("*.part"))


def test_threads_read_write_and_prune_at_once(tmp_path):
    cache = DiskCache(tmp_path, 20_000)
    failures = []

    def work(seed):
        try:
            for step in range(40):
                key = CacheKey("k", b"%d" % ((seed * step) % 30))
                found = cache.get(key)
                assert found is None or found == (key.material * 500, "")
                cache.put(key, key.material * 500, "")
        except BaseException as error:  # noqa: BLE001 (shown by the assertion)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
