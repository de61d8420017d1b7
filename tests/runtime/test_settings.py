from pathlib import Path

import pytest

from convloom import settings
from convloom.errors import IllegalProblem


def test_defaults():
    default = settings.from_environment({})
    assert default.debug == 0
    assert default.cache_limit == 2**30
    assert default.cache_dir.name == "convloom"
    assert default.threads >= 1
    assert default.cc is None


def test_values_are_read():
    read = settings.from_environment(
        {
            "CONVLOOM_CACHE_DIR": "/a/b",
            "CONVLOOM_CACHE_LIMIT": "1.5MiB",
            "CONVLOOM_CC": "ccache 'my gcc' -m64",
            "CONVLOOM_DEBUG": "6",
            "CONVLOOM_THREADS": "3",
            "CONVLOOM_DUMP": "",
            "OTHER": "x",
        }
    )
    assert read.cache_dir == Path("/a/b")
    assert read.cache_limit == 3 * 2**19
    assert read.cc == ("ccache", "my gcc", "-m64")
    assert (read.debug, read.threads, read.dump) == (6, 3, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("512", 512), ("2kb", 2000), ("2 KiB", 2048), ("1.5GB", 1_500_000_000), ("3T", 3 * 10**12)],
)
def test_sizes(text, expected):
    assert settings.parse_size(text) == expected


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("CONVLOOM_DEBUG", "7"),
        ("CONVLOOM_DEBUG", "-1"),
        ("CONVLOOM_DEBUG", "on"),
        ("CONVLOOM_THREADS", "0"),
        ("CONVLOOM_THREADS", "2.5"),
        ("CONVLOOM_CACHE_LIMIT", "much"),
        ("CONVLOOM_CACHE_LIMIT", "-5"),
        ("CONVLOOM_CC", "'unclosed"),
        ("CONVLOOM_BUILD_TIMEOUT", "0"),
    ],
)
def test_bad_values_name_the_variable_the_value_and_the_remedy(variable, text):
    with pytest.raises(IllegalProblem) as caught:
        settings.from_environment({variable: text})
    message = str(caught.value)
    assert variable in message
    assert repr(text) in message
    assert "unset it" in message


def test_misspelt_variables_are_refused():
    with pytest.raises(IllegalProblem, match="got CONVLOOM_CACHEDIR; correct"):
        settings.from_environment({"CONVLOOM_CACHEDIR": "/x"})


def test_scopes_nest_and_end():
    before = settings.current()
    with settings.scoped(threads=3):
        with settings.scoped(debug=2) as inner:
            assert (inner.threads, inner.debug) == (3, 2)
            assert settings.current() is inner
        assert (settings.current().threads, settings.current().debug) == (3, before.debug)
    assert settings.current() == before


def test_an_unknown_field_is_refused():
    with pytest.raises(IllegalProblem, match="colour"), settings.scoped(colour=1):
        pass


def test_the_table_covers_every_field():
    assert {knob.field for knob in settings.KNOBS} == set(settings.Settings.__slots__)
    assert len(settings.table()) == len(settings.KNOBS)
