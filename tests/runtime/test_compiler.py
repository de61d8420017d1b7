import pytest

from convloom import settings
from convloom.artifact import Language
from convloom.errors import UnsupportedTarget
from convloom.runtime.cpu import CpuDevice
from convloom.runtime.nvrtc import current_nvrtc


def test_dumps_are_complete_also_from_the_cache(axpby, tmp_path):
    sources = [axpby(), axpby(text="int x;\nvoid NAME(void) {}")]
    for round in range(2):
        directory = tmp_path / f"dump{round}"
        with settings.scoped(dump=directory):
            for source in sources:
                CpuDevice().build(source)
        names = sorted(path.name for path in directory.iterdir() if path.name.startswith("axpby-"))
        assert [name.partition(".")[2] for name in names] == ["bin", "c", "log", "s"] * 2
        texts = {path.read_text() for path in directory.glob("axpby-*.c")}
        assert texts == {source.text for source in sources}
        assert all("axpby:" in path.read_text() for path in directory.glob("axpby-*.s"))


@pytest.mark.parametrize(
    ("level", "present", "absent"),
    [
        (0, [], ["convloom"]),
        (2, ["compiled axpby-"], ["int64_t"]),
        (3, ["compiled axpby-", "int64_t"], ["axpby:"]),
        (6, ["compiled axpby-", "int64_t", "axpby:"], []),
    ],
)
def test_the_debug_level_says_what_is_printed(axpby, capfd, level, present, absent):
    with settings.scoped(debug=level):
        CpuDevice().build(axpby())
    printed = capfd.readouterr().err
    assert all(text in printed for text in present)
    assert not any(text in printed for text in absent)


def test_machine_code_of_cuda_or_what_is_missing(axpby):
    try:
        nvrtc = current_nvrtc()
    except UnsupportedTarget as error:
        pytest.skip(str(error))
    source = axpby(Language.CUDA)
    text = nvrtc.machine_code(source, nvrtc.compile(source))
    assert "STG" in text or "pip install nvidia-cuda-nvdisasm" in text
