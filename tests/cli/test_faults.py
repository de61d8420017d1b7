"""What a user can get wrong ends in one message that names rule, value and remedy, and in exit status 2."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from convloom import settings
from convloom.cli import app
from convloom.cli import fuzz as fuzz_command
from convloom.runtime.disk_cache import CacheKey, current_cache
from convloom.settings import from_environment

SMALL = "mb1ic3ih7oc4oh7kh3ph1"
GEMM = "-t f32 -transA false -transB true -m 3 -n 4 -k 5"


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def refused(*arguments, **changes):
    """The message of a command that must be refused."""
    with settings.scoped(**changes):
        result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return " ".join(result.stderr.split())


def fresh(key, size):
    """A problem that nothing else in this process runs: kernels are kept."""
    return f"mb2ic3{key}{size + 20}oc4{key[0].replace('i', 'k')}{key[1]}3"


def convloom(*arguments, **variables):
    """The command in a process of its own, for what settings.scoped cannot say."""
    command = [sys.executable, "-c", "from convloom.cli import app; app(prog_name='convloom')", *arguments]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_no_text(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\x00\xff")
    assert "must be text in UTF-8" in refused("check", "--batch", path)


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n"])
def test_a_batch_without_problems_passes_nothing(tmp_path, content):
    path = tmp_path / "none.txt"
    path.write_text(content)
    assert "must hold at least one problem" in refused("check", "--batch", path)


@pytest.mark.parametrize("value", ["nan", "-1", "-inf"])
@pytest.mark.parametrize(
    "command", [("check", "--batch", "any.txt", "--max-mops"), ("fuzz", "--cases", 1, "--seconds")]
)
def test_bounds_are_numbers_of_at_least_0(command, value):
    message = refused(*command, value)
    assert f"{command[-1]} must be a number of at least 0; got {value}" in message


@pytest.mark.parametrize(
    "arguments", [("fuzz", "--cases", 0), ("fuzz", "--seed", "x"), ("check", "--max-mops", "many")]
)
def test_other_numbers(arguments):
    assert str(arguments[1]) in refused(*arguments)


# --- problems -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["key", "explain", "emit", "run"])
def test_a_problem_may_begin_with_dashes(command):
    """Lines of rocMLIR do, and of benchdnn; also after --, and behind or in front of options."""
    expected = run(command, "--", GEMM)
    assert expected.exit_code == 0, expected.output
    if command != "run":  # it prints times
        assert run(command, GEMM).stdout == run(command, GEMM, "--dt", "f32").stdout == expected.stdout
        assert run(command, "--dt", "f32", GEMM).stdout == expected.stdout
    assert run(command, GEMM).exit_code == 0
    assert run(command, "--dir=BWD_D --dt=f16 mb2ic4oc4ih5kh3").exit_code == 0
    assert run(command, "--operation gemm -t f32 -m 3 -n 4 -k 5 -g 1").exit_code in (0, 2)  # of rocmlir-gen


def test_a_plan_with_blanks_stays_an_option():
    plan = run("emit", SMALL, "--stage", "plan").stdout.strip()
    assert run("emit", SMALL, f"--plan={plan}", "--stage", "plan").stdout.strip() == plan
    assert run("emit", GEMM, "--plan", run("emit", GEMM, "--stage", "plan").stdout.strip()).exit_code == 0


@pytest.mark.parametrize("arguments", [GEMM.split(), ["MIOpenDriver", "conv", "-n", "1"]])
def test_a_problem_without_quotes(arguments):
    assert "put the line in quotes" in refused("key", *arguments)


def test_two_problems():
    assert "unexpected extra argument" in refused("key", GEMM, GEMM)


@pytest.mark.parametrize(
    "line", ["mb99999999999999999999999ic3ih7oc4oh7kh3ph1", "ic1ih5oc1oh2kh1sh99999999999999999999"]
)
@pytest.mark.parametrize("command", ["key", "emit", "run"])
def test_sizes_beyond_index_math(command, line):
    assert "must not exceed 2**48" in refused(command, line)


@pytest.mark.parametrize("arguments", [("mb1000ic10000ih1000oc8oh998kh3",), (SMALL, "--stag", "aBx999999999999b")])
def test_tensors_beyond_memory(arguments):
    message = refused("run", *arguments)
    assert "must fit the machine's memory; they need at least " in message
    assert "choose smaller sizes" in message


def test_a_batch_goes_on_after_tensors_beyond_memory(tmp_path):
    path = tmp_path / "some.txt"
    path.write_text(f"mb1000ic10000ih1000oc8oh998kh3\n{SMALL}\n")
    result = run("check", "--batch", path)
    assert result.exit_code == 1
    assert "must fit the machine's memory" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


def test_memory_that_runs_out_late(monkeypatch):
    def exhausted(*_, **__):
        raise MemoryError("Unable to allocate 3 GiB")

    monkeypatch.setattr("convloom.cli.run.compile", exhausted)
    assert "needs more memory than there is; Unable to allocate 3 GiB; choose smaller" in refused("run", SMALL)


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value"), [("CONVLOOM_CC", " "), ("CONVLOOM_CC", '"'), ("CONVLOOM_DUMP", "~nobody-here/x")]
)
def test_values_that_say_nothing(variable, value):
    result = convloom("run", SMALL, **{variable: value})
    assert result.returncode == 2
    assert f"{variable} must be" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("true", "ended well and wrote none"),
        ("false", "must answer --version; "),
        ("ls", "must compile a probe; "),
        ("no-such-compiler", "must be installed; this one is not"),
    ],
)
def test_a_command_that_is_no_compiler(command, fault):
    message = refused("run", fresh("ih", len(command)), cc=(command,), cache_limit=0)
    assert f"tried {command}: a C compiler " in message
    assert fault in message
    assert message.count("pip install") == 1
    assert message.endswith("correct or unset CONVLOOM_CC, or pip install 'convloom[cpu]'")
    assert "report this log" not in message


def test_devices_name_a_remedy_once():
    with settings.scoped(cc=("no-such-compiler",)):
        cpu = run("devices").stdout.split("\nfound")[0].split("\nmissing")[0]
    assert "no C compiler works" in cpu
    assert cpu.count("pip install") == 1


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_dump_that_cannot_be_written(tmp_path, place):
    (tmp_path / "file").touch()
    message = refused("run", fresh("iw", len(place)), dump=tmp_path / place)
    assert f"CONVLOOM_DUMP must be a directory that can be written; {tmp_path / place} gave" in message


@pytest.mark.parametrize("command", [("list",), ("prune",)])
def test_a_cache_that_cannot_be_used(tmp_path, command):
    (tmp_path / "file").touch()
    message = refused("cache", *command, cache_dir=tmp_path / "file")
    assert "the kernel cache must be a directory; " in message
    assert "correct CONVLOOM_CACHE_DIR" in message


def test_a_cache_that_is_not_there_yet_is_empty(tmp_path):
    with settings.scoped(cache_dir=tmp_path / "new" / "cache"):
        assert run("cache", "list").stdout == "0 kernels, 0.0 MiB\n"


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs POSIX")
def test_a_user_without_a_home(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pathlib.Path.home", homeless)
    with pytest.raises(settings.IllegalProblem, match="set CONVLOOM_CACHE_DIR"):
        from_environment({})


def test_a_relative_cache_home_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    assert from_environment({}).cache_dir == tmp_path / ".cache" / "convloom"


def test_a_cache_whose_files_cannot_be_removed(tmp_path, monkeypatch):
    def forbidden(*_, **__):
        raise PermissionError("not yours")

    with settings.scoped(cache_dir=tmp_path, cache_limit=2**20):
        current_cache().put(CacheKey("kernel", b"1"), b"x" * 2048, "")
    monkeypatch.setattr("pathlib.Path.unlink", forbidden)
    message = refused("cache", "prune", cache_dir=tmp_path, cache_limit=2**20)
    assert "pruning needs a cache whose files may be removed" in message


# --- what is printed ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("emit", SMALL), ("devices",)])
def test_output_that_cannot_be_written(arguments):
    command = [sys.executable, "-c", "from convloom.cli import app; app(prog_name='convloom')", *arguments]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode != 0
    assert "No space left on device" in result.stderr
    assert "Traceback (most" not in result.stderr


def test_an_interrupted_fuzz_counts_what_ran(monkeypatch):
    ran = []

    def interrupted(*_):
        ran.append(1)
        if len(ran) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(fuzz_command, "run_case", interrupted)
    result = run("fuzz", "--seconds", 30)
    assert result.exit_code == 1
    assert "interrupted in case 3" in result.stderr
    assert result.stdout == "2 cases from seed 0 on cpu, 0 faults\n"


def test_a_reader_that_stops_early():
    line = f"{sys.executable} -c \"from convloom.cli import app; app(prog_name='convloom')\" emit {SMALL} | head -1"
    result = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert result.stderr == ""


def test_a_terminal_without_unicode():
    result = convloom("run", "mb1ic3é", PYTHONIOENCODING="ascii")
    assert result.returncode == 2
    assert "correct it" in result.stderr
