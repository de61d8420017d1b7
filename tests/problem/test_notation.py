"""Notations: every suite line goes through all notations unchanged; grammar traps; messages."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convloom.dtypes import BF16, F16, F32, S8, S32, U8
from convloom.errors import IllegalProblem, IllegalType, NotYetSupported
from convloom.expr import sym
from convloom.problem.conv import Conv, Direction, Scaling, TensorSpec
from convloom.problem.conv_arguments import conv_problem, conv_transpose_problem
from convloom.problem.gemm import Gemm
from convloom.problem.layout import dense, plain
from convloom.problem.layout_tags import TensorKind, layout_from_tag, weights_layout
from convloom.problem.notation import Notation, expressible, notation_of, parse_problem, print_problem, read_batch

SUITES = Path(__file__).parents[2] / "suites"
FILES = sorted(SUITES.rglob("*.txt"))


def parse(text, **rest):
    problem = parse_problem(text, **rest)
    assert isinstance(problem, Conv)
    return problem


def sizes(conv):
    return (
        conv.batch.value,
        conv.in_channels.value,
        tuple(e.value for e in conv.in_spatial),
        conv.out_channels.value,
        tuple(e.value for e in conv.out_spatial),
    )


def test_suites_are_present():
    assert len(FILES) == 38
    assert sum(len(read_batch([path])) for path in FILES) == 2024


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SUITES)))
def test_every_line_round_trips_in_every_notation(path):
    for line in read_batch([path]):
        found = expressible(line.problem)
        assert notation_of(line.text) in found
        for notation in found:
            assert parse_problem(print_problem(line.problem, notation)) == line.problem


@pytest.mark.parametrize("direction", Direction)
def test_lines_take_direction_types_and_tags_from_the_caller(direction):
    for line in ("mb3g2ic4ih5oc6oh5kh3ph1", "-n 3 -c 4 -H 5 -W 5 -k 6 -y 3 -x 3 -p 1 -q 1 -g 2 -m conv"):
        conv = parse(line, direction=direction.value, dtypes="f16:bf16:f32")
        assert (conv.direction, conv.src.dtype, conv.wei.dtype, conv.dst.dtype) == (direction, F16, BF16, F32)
        assert parse_problem(print_problem(conv, Notation.BENCHDNN)) == conv


# -- benchdnn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ic3oc4ih5kh3", (2, 3, (5, 5), 4, (3, 3))),
        ("mb1_ic3oc4_iw5kw2", (1, 3, (5,), 4, (4,))),
        ("ic3oc4id6kd3pd1", (2, 3, (6, 6, 6), 4, (6, 6, 6))),
        ("ic3oc4ih5oh5kh3_iw7ow7kw1", (2, 3, (5, 7), 4, (5, 7))),
        ("oh2kh3sh2ih5ic1oc1mb0", (0, 1, (5, 5), 1, (2, 2))),
    ],
)
def test_benchdnn_sizes(text, expected):
    assert sizes(parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "pad", "end"),
    [
        ("ic1oc1iw5ow5kw3", 1, 1),
        ("ic1oc1iw5ow6kw4", 2, 2),
        ("ic1oc1iw5ow5kw4", 1, 2),
        ("ic1oc1iw8ow2kw3sw2", -1, -2),
        ("ic1oc1iw5ow9kw3dw1pw4", 4, 4),
        ("ic1oc1iw10ow3kw3sw3pw0", 0, -1),
        ("ic1oc1iw5kw3", 0, 0),
    ],
)
def test_benchdnn_pads(text, pad, end):
    conv = parse(text)
    assert conv.pad_begin == (pad,)
    assert conv.pad_end[0].value == end
    assert parse_problem(print_problem(conv)) == conv


def test_benchdnn_dilation_counts_holes():
    assert parse("ic1oc1iw9kw3dw0").dilation == (1,)
    assert parse("ic1oc1iw9kw3dw2").dilation == (3,)


def test_benchdnn_names_are_labels():
    conv = parse('ic1oc1iw9kw3_n"net:conv1*5 a"')
    assert conv.name == '"net:conv1*5 a"'
    assert conv == parse("ic1oc1iw9kw3")
    assert parse(print_problem(conv)).name == conv.name


def test_benchdnn_groups_are_counted_in_weight_tags():
    one = parse("--wtag=abx g1ic8oc8ih5kh3")
    assert one == parse("--wtag=abx ic8oc8ih5kh3") == parse("g1ic8oc8ih5kh3")
    grouped = parse("--wtag=gohwi g4ic8oc16ih5kh3")
    assert grouped.wei.layout == weights_layout("gohwi", (16, 2, 3, 3), 4, explicit_groups=True)
    assert parse("--wtag=abx g4ic8oc16ih5kh3").wei.layout == dense((16, 2, 3, 3))
    with pytest.raises(IllegalProblem, match="layout name"):
        parse("--wtag=goihw ic8oc16ih5kh3")


def test_benchdnn_options():
    conv = parse("--dir=FWD_B --dt=u8:s8:s32 --bia-dt=s32 --stag=axb --dtag=aBx16b --mb=7 mb1ic8oc20ih5kh3")
    assert (conv.src.dtype, conv.wei.dtype, conv.dst.dtype, conv.bias) == (U8, S8, S32, S32)
    assert conv.batch.value == 7
    assert conv.src.layout == layout_from_tag("nhwc", (7, 8, 5, 5), TensorKind.ACTIVATION)
    assert conv.dst.layout == layout_from_tag("aBcd16b", (7, 20, 3, 3))
    assert parse(print_problem(conv)) == conv
    assert parse("--dir=FWD_B ic1oc1iw3kw1").bias is F32
    assert parse("--dir=FWD_D ic1oc1iw3kw1", bias=F16, dtypes="f16").bias is None


def test_benchdnn_strides():
    conv = parse("--strides=1000x100x10x1:36x9x3x1:90x9x3x1 mb2ic4oc4ih5kh3")
    assert conv.src.layout == plain((1000, 100, 10, 1))
    assert parse(print_problem(conv)) == conv
    grouped = parse("--strides=100x25x5x1:40x20x10x3x1:36x9x3x1 mb2g2ic4oc4ih5kh3")
    assert grouped.wei.layout == plain((20, 10, 3, 1))
    assert parse(print_problem(grouped)) == grouped


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must not be empty"),
        ("ic3oc4ih5kh3q7", "'q7'"),
        ("ic3oc4ih5kh3ph-1", "'ph-1'"),
        ("oc4ih5kh3", "needs ic"),
        ("ic0oc4ih5kh3", "needs ic"),
        ("ic3oc4", "needs a spatial dimension"),
        ("ic3oc4ih5", "needs kh"),
        ("ic3oc4ih2kh3", "effective kernel 3 is larger than the padded input 2"),
        ("ic3oc4id5kd3ih5kh3", "add the missing one"),
        ("g2ic3oc4ih5kh3", "g2ic3oc4"),
        ("g0ic3oc4ih5kh3", "g0ic3oc4"),
        ("--dir=SIDEWAYS ic3oc4ih5kh3", "SIDEWAYS"),
        ("--dt=f32,f16 ic3oc4ih5kh3", "one problem"),
        ("--dt=f32:f16 ic3oc4ih5kh3", "src:wei:dst"),
        ("--colour=red ic3oc4ih5kh3", "--colour"),
        ("--stag=xyz ic3oc4ih5kh3", "'xyz'"),
        ("--strides=1x2:3x4 ic3oc4ih5kh3", "SRC:WEI:DST"),
        ("--strides=ax1:3:4 ic3oc4ih5kh3", "'a'"),
        ("--dt=f32", "ends with a descriptor"),
    ],
)
def test_benchdnn_errors(text, message):
    with pytest.raises(IllegalProblem, match=message):
        parse_problem(text)


def test_benchdnn_errors_of_type_and_scope():
    with pytest.raises(IllegalType, match="'f31'"):
        parse_problem("--dt=f31 ic3oc4ih5kh3")
    with pytest.raises(NotYetSupported, match="--attr-fpmath"):
        parse_problem("--attr-fpmath=bf16 ic3oc4ih5kh3")
    with pytest.raises(NotYetSupported, match="depthwise"):
        parse_problem("--attr-post-ops=dw:k3s1p1 ic3oc4ih5kh3")


DIMENSION = st.tuples(
    st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 3)
)
TAG_CHOICES = st.sampled_from(["abx", "axb", "xab", "bax"])


@given(
    st.sampled_from(Direction), st.integers(0, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3),
    st.lists(DIMENSION, min_size=1, max_size=3), st.tuples(TAG_CHOICES, TAG_CHOICES, TAG_CHOICES),
)  # fmt: skip
@settings(derandomize=True, deadline=None)
def test_random_convolutions_round_trip(direction, batch, groups, inputs, outputs, dims, tags):
    columns = tuple(zip(*dims, strict=True))
    src, dst = (batch, groups * inputs, *columns[0]), (batch, groups * outputs, *columns[1])
    wei = (groups * outputs, inputs, *columns[2])
    layouts = layout_from_tag(tags[0], src), layout_from_tag(tags[1], wei), layout_from_tag(tags[2], dst)
    conv = Conv(
        direction, batch, src[1], dst[1], groups, *columns,
        *[TensorSpec(F16, layout) for layout in layouts],
    )  # fmt: skip
    found = expressible(conv)
    assert Notation.BENCHDNN in found
    for notation in found:
        assert parse_problem(print_problem(conv, notation)) == conv


# -- MIOpenDriver and rocMLIR ---------------------------------------------------------------------------------------


def test_driver_defaults_and_long_names():
    conv = parse("MIOpenDriver conv")
    assert sizes(conv) == (100, 3, (32, 32), 32, (30, 30))
    long = "./bin/MIOpenDriver convfp16 --batchsize 2 --in_channels 8 --in_h 9 --fil_w 1 --pad_h 1 --forw 4 --time 1"
    short = "convfp16 -n 2 -c 8 -H 9 -x 1 -p 1 -F 4"
    assert parse(long) == parse(short)
    assert parse(long).direction is Direction.BWD_W
    assert parse(long).dst.dtype is F16


def test_driver_three_dimensions():
    conv = parse("conv -_ 3 -! 4 -H 5 -W 6 -@ 1 -y 2 -x 3 -# 1 -u 2 -v 3 -$ 0 -p 1 -q 1 -^ 2 -l 1 -j 1")
    assert (conv.kernel, conv.stride, conv.pad_begin, conv.dilation) == ((1, 2, 3), (1, 2, 3), (0, 1, 1), (2, 1, 1))
    for notation in (Notation.MIOPEN, Notation.ROCMLIR):
        assert parse_problem(print_problem(conv, notation)) == conv


def test_driver_layouts():
    conv = parse("conv -n 2 -c 4 -k 8 -H 5 -W 6 -I NHWC -f NHWC -O NHWC -g 2")
    assert conv.src.layout == layout_from_tag("nhwc", (2, 4, 5, 6), TensorKind.ACTIVATION)
    assert conv.wei.layout == layout_from_tag("ohwi", (8, 2, 3, 3), TensorKind.WEIGHTS)
    assert parse_problem(print_problem(conv, Notation.MIOPEN)) == conv


def test_driver_integers_accumulate_in_s32_in_every_direction():
    for flag, result in (("1", "dst"), ("2", "src"), ("4", "wei")):
        conv = parse(f"convint8 -F {flag} -c 4 -n 1")
        types = {"src": conv.src.dtype, "wei": conv.wei.dtype, "dst": conv.dst.dtype}
        assert types.pop(result) is S32
        assert set(types.values()) == {S8}
        assert parse_problem(print_problem(conv, Notation.MIOPEN)) == conv


@pytest.mark.parametrize(("flag", "direction"), [("1", Direction.BWD_D), ("2", Direction.FWD), ("4", Direction.BWD_W)])
def test_driver_transposed_mode(flag, direction):
    conv = parse(f"conv -m trans -F {flag} -n 2 -c 6 -k 4 -H 5 -W 7 -u 2 -v 3 -Y 1 -X 2 -p 1 -q 0 -g 2")
    asked = conv_transpose_problem(
        batch=2, in_channels=6, out_channels=4, in_spatial=(5, 7), kernel=(3, 3), stride=(2, 3),
        padding=(1, 0), output_padding=(1, 2), groups=2,
    )  # fmt: skip
    assert conv == asked.replace_direction(direction)
    assert conv.wei_shape[0].value == 6
    assert parse_problem(print_problem(conv, Notation.MIOPEN)) == conv


def test_driver_bias_of_a_transposed_convolution_prints_as_one():
    conv = parse("convbfp16 -m trans -F 1 -c 6 -k 4 -b 1 -u 2 -Y 1 -O NHWC")
    assert (conv.bias, conv.direction) == (BF16, Direction.BWD_D)
    assert "-m trans" in print_problem(conv, Notation.MIOPEN)
    assert parse_problem(print_problem(conv, Notation.MIOPEN)) == conv
    assert Notation.ROCMLIR not in expressible(conv)


def test_driver_pad_modes():
    assert parse("conv -z valid -p 5 -q 5").pad_begin == (0, 0)
    assert parse("conv -z same -H 32 -W 32 -y 5 -x 3").pad_begin == (2, 1)
    with pytest.raises(IllegalProblem, match="even total pad"):
        parse("conv -z same -H 32 -y 4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv -n", "odd number"),
        ("conv -n 2 c 4", "starts with a dash"),
        ("conv -n two", "'two'"),
        ("conv -Q 2", "-Q"),
        ("conv --height 2", "--height"),
        ("conv -F 3", "one direction"),
        ("conv -m mirror", "'mirror'"),
        ("convfp99 -n 2", "'convfp99'"),
        ("conv -_ 1", "2 or 3"),
        ("conv -g 2 -c 3", "in_channels=3 is not divisible by groups=2"),
        ("conv -H 2", "effective kernel 3 is larger than the padded input 2"),
        ("conv -I NHC", "'NHC'"),
        ("conv -f GNC01 -I NGC01 -n 1", "names all layouts"),
        ("conv -f GNC01 -I NGC01 -O NGC0", "'NGC0'"),
        ("conv -z wrap", "'wrap'"),
    ],
)
def test_driver_errors(text, message):
    with pytest.raises(IllegalProblem, match=message):
        parse_problem(text)


def test_driver_flags_of_other_operations_are_not_ignored():
    with pytest.raises(NotYetSupported, match="-Z"):
        parse_problem("conv -Z 1")


@pytest.mark.parametrize("letters", ["GNC01", "N01GC", "NGC01", "G0NC1", "GN01C", "01CNG"])
@pytest.mark.parametrize("activations", ["NGC01", "01NGC", "G0NC1", "N01GC", "C0N1G"])
@pytest.mark.parametrize("groups", [1, 3])
def test_rocmlir_letters_place_groups_anywhere(letters, activations, groups):
    sizes = f"-n 2 -c {groups * 4} -H 5 -W 6 -k {groups * 2} -g {groups}"
    line = f"convfp16 -F 1 -f {letters} -I {activations} -O NGC01 {sizes}"
    conv = parse(line)
    spatial = {"0": 5, "1": 6}
    extents = {"N": 2, "G": groups, "C": 4} | spatial
    strides, step = {}, 1
    for letter in reversed(activations):
        strides[letter] = step
        step *= extents[letter]
    access = conv.src.layout.view("ncyx", conv.src_shape).access({"n": 1, "c": groups * 4 - 1, "y": 2, "x": 3})
    expected = strides["N"] + (groups - 1) * strides["G"] + 3 * strides["C"] + 2 * strides["0"] + 3 * strides["1"]
    assert access.offset.value == expected
    assert parse_problem(print_problem(conv, Notation.ROCMLIR)) == conv


def test_gemm_lines():
    gemm = parse_problem("-t i8 -out_datatype i32 -transA true -transB false -g 3 -m 4 -n 5 -k 6 -perf_priority 2")
    assert isinstance(gemm, Gemm)
    assert (gemm.a.dtype, gemm.c.dtype) == (S8, S32)
    assert gemm.a.layout == plain((24, 1, 4))
    assert gemm.b.layout == plain((30, 5, 1))
    assert parse_problem(print_problem(gemm)) == gemm
    open_line = parse_problem("-transA false -transB true -g 1 -m 4 -n 5 -k 6 -transO true", dtypes="f16:f16:f32")
    assert isinstance(open_line, Gemm)
    assert (open_line.batch, open_line.a.dtype, open_line.c.dtype) == ((), F16, F32)
    assert open_line.c.layout == plain((1, 4))
    assert parse_problem(print_problem(open_line)) == open_line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-transA false -m 4 -n 5", "-k is missing"),
        ("-transA maybe -m 4 -n 5 -k 6", "'maybe'"),
        ("-transA false -m four -n 5 -k 6", "'four'"),
        ("-transA false -m 4 -n 5 -k 6 -q 3", "got q"),
        ("-t f8 -transA false -m 4 -n 5 -k 6", "'f8'"),
    ],
)
def test_gemm_errors(text, message):
    with pytest.raises(IllegalProblem, match=message):
        parse_problem(text)


def test_rocmlir_gen_lines():
    line = (
        "rocmlir-gen --operation conv_bwd_data -t f16 --arch gfx942 --fil_layout=k01gc --in_layout=n01gc "
        "--out_layout=n01gk --batchsize=2 --in_channels=8 --out_channels=6 --groupsize=2 --in_h=9 --in_w=10 --fil_h=3 "
        "--fil_w=2 --dilation_h=2 --conv_stride_w=3 --padding_h=2 --padding_w_l=1 --padding_w_r=0 -pv"
    )
    conv = parse(line)
    assert sizes(conv) == (2, 8, (9, 10), 6, (9, 4))
    assert (conv.direction, conv.src.dtype, conv.pad_begin) == (Direction.BWD_D, F16, (2, 1))
    assert conv.src.layout == layout_from_tag("nhwc", (2, 8, 9, 10), TensorKind.ACTIVATION)
    assert parse_problem(print_problem(conv, Notation.ROCMLIR_GEN)) == conv


def test_rocmlir_gen_products():
    line = "rocmlir-gen --operation gemm -t f16 -out_datatype f32 -g 3 -m 4 -k 5 -n 6 -transB --arch gfx942"
    gemm = parse_problem(line)
    assert gemm == parse_problem("-t f16 -out_datatype f32 -transA false -transB true -g 3 -m 4 -k 5 -n 6")
    assert parse_problem(print_problem(gemm, Notation.ROCMLIR_GEN)) == gemm


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--operation attention -t f16", "'attention'"),
        ("--operation conv --colour red", "--colour"),
        ("--operation conv --in_h", "takes a value"),
        ("--operation conv -t f32 --in_h 4 --fil_h 3", "--batchsize takes a number"),
        ("--operation conv -t f9 --batchsize 1 --in_channels 1 --out_channels 1 --in_h 4 --fil_h 3", "-t must be one"),
    ],
)
def test_rocmlir_gen_errors(text, message):
    with pytest.raises(IllegalProblem, match=message):
        parse_problem(text)


# -- what cannot be said --------------------------------------------------------------------------------------------

BASE = {"batch": 2, "in_channels": 4, "out_channels": 4, "in_spatial": (5, 5), "kernel": (3, 3)}


@pytest.mark.parametrize(
    ("change", "notation", "reason"),
    [
        ({"batch": sym("n", lo=1)}, Notation.BENCHDNN, "symbolic size n"),
        ({"in_channels": 0}, Notation.BENCHDNN, "in_channels is 0"),
        ({"padding": ((-1, 0), (0, 0))}, Notation.BENCHDNN, "negative"),
        ({"scaling": Scaling(beta=True)}, Notation.BENCHDNN, "alpha or beta"),
        ({"padding": ((1, 0), (1, 1))}, Notation.MIOPEN, "unequal"),
        ({"in_spatial": (5,), "kernel": (3,)}, Notation.ROCMLIR, "one spatial dimension"),
        ({"dtypes": (F16, F16, F32)}, Notation.ROCMLIR, "f16:f16:f32"),
        ({"bias": F32}, Notation.ROCMLIR, "bias"),
        ({"layouts": (plain((200, 50, 6, 1)), None, None)}, Notation.ROCMLIR, "src is not dense"),
        ({"layouts": ("aBx2b", None, None)}, Notation.ROCMLIR, "src is"),
        ({}, Notation.ROCMLIR_GEMM, "convolution"),
    ],
)
def test_what_a_notation_cannot_say_is_refused_with_the_reason(change, notation, reason):
    conv = conv_problem(**BASE | change)
    with pytest.raises(IllegalProblem, match=reason):
        print_problem(conv, notation)
    assert notation not in expressible(conv)


def test_gemms_that_have_no_line():
    def gemm(batch, dtypes, a):
        shapes = ((*batch, 2, 3), (*batch, 3, 4), (*batch, 2, 4))
        specs = [TensorSpec(d, dense(s)) for d, s in zip(dtypes, shapes, strict=True)]
        specs[0] = TensorSpec(dtypes[0], a or specs[0].layout)
        return Gemm(batch, 2, 4, 3, *specs)

    for problem, reason in (
        (gemm((2, 2), (F32,) * 3, None), "not one axis"),
        (gemm((1,), (F32,) * 3, None), "not one axis"),
        (gemm((), (F32, F16, F32), None), "types f32, f16, f32"),
        (gemm((), (F32,) * 3, plain((7, 1))), "a is neither"),
    ):
        with pytest.raises(IllegalProblem, match=reason):
            print_problem(problem)


# -- files ----------------------------------------------------------------------------------------------------------


def test_batch_files(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("# comment\n\n  ic1oc1iw5kw3  \n")
    second.write_text("conv -n 1\n")
    lines = read_batch([first, second])
    assert [(line.path.name, line.number, line.text) for line in lines] == [
        ("a.txt", 3, "ic1oc1iw5kw3"),
        ("b.txt", 1, "conv -n 1"),
    ]


def test_batch_errors_name_file_and_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("ic1oc1iw5kw3\nic1oc1\n")
    with pytest.raises(IllegalProblem, match=r"a.txt:2: .*spatial"):
        read_batch([path])
    with pytest.raises(IllegalProblem, match="readable"):
        read_batch([tmp_path / "absent.txt"])
