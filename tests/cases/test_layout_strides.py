"""Strides of every kind: irrelevant, zero, negative, with gaps; each call is computed for its own."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import convloom
from convloom import conv_problem
from convloom.errors import IllegalProblem
from convloom.problem.layout import plain
from tests.cases.convolution import integers
from tests.cases.memory import BFLOAT16, Guarded, element_strides, guarded

F32 = np.float32

# --- LAY-03: strides of dimensions of extent 1 ----------------------------------------------------------------------


@pytest.mark.parametrize("case", ["LAY-03"])
@pytest.mark.parametrize("strides", [(2, 1, 2, 2, 2), (2, 1, 1, 1, 1), (7, 1, 1000, 0, -3)], ids=str)
def test_strides_of_single_elements_do_not_matter(case, strides):
    dy, w = integers((1, 1, 1, 1, 1)) + 3, integers((1, 2, 1, 1, 1), seed=1)
    out = Guarded((1, 2, 1, 1, 1), F32, strides=(2, 1, 1, 1, 1))
    odd = as_strided(out.array, out.array.shape, [stride * 4 for stride in strides])
    convloom.conv_input_grad((1, 2, 1, 1, 1), w, dy, out=odd)
    assert np.array_equal(out.array.ravel(), dy.ravel() * w.ravel())
    assert out.surroundings_unchanged
    x = as_strided(integers((2,)), (1, 2, 1, 1, 1), [stride * 4 for stride in strides])
    dense = convloom.conv(x.copy(), w)
    assert np.array_equal(convloom.conv(x, w), dense)
    assert np.array_equal(convloom.conv_weight_grad(x, w.shape, dy), convloom.conv_weight_grad(x.copy(), w.shape, dy))


# --- LAY-04: elements that many indices share -----------------------------------------------------------------------


@pytest.mark.parametrize("case", ["LAY-04"])
def test_one_weight_for_all_taps(case):
    w = np.broadcast_to(np.ones(1), (1, 1, 2))
    assert w.strides[2] == 0
    assert convloom.conv(np.ones((1, 1, 3)), w).tolist() == [[[2.0, 2.0]]]


@pytest.mark.parametrize("case", ["LAY-04-batch"])
def test_one_image_for_the_whole_batch(case):
    image, w, dy = integers((1, 3, 6, 5)), integers((4, 3, 3, 3), seed=1), integers((5, 4, 4, 3), seed=2)
    x = np.broadcast_to(image, (5, 3, 6, 5))
    assert np.array_equal(convloom.conv(x, w), convloom.conv(x.copy(), w))
    assert np.array_equal(convloom.conv_weight_grad(x, w.shape, dy), convloom.conv_weight_grad(x.copy(), w.shape, dy))


@pytest.mark.parametrize("case", ["LAY-04-gradient"])
def test_the_gradient_of_a_sum(case):
    """It is one number for all elements: every stride is 0."""
    x, w = integers((5, 3, 6, 5)), integers((4, 3, 3, 3), seed=1)
    dy = np.broadcast_to(F32(1), (5, 4, 4, 3))
    assert np.array_equal(convloom.conv_input_grad(x.shape, w, dy), convloom.conv_input_grad(x.shape, w, dy.copy()))
    assert np.array_equal(convloom.conv_weight_grad(x, w.shape, dy), convloom.conv_weight_grad(x, w.shape, dy.copy()))


@pytest.mark.parametrize("case", ["LAY-04-result"])
def test_a_result_may_not_share_elements(case):
    x, w = np.ones((2, 1, 3)), np.ones((1, 1, 2))
    out = as_strided(np.zeros(2), (2, 1, 2), (0, 0, 8))
    with pytest.raises(IllegalProblem, match="elements of an output must not share memory"):
        convloom.conv(x, w, out=out)


# --- LAY-05: parts of larger arrays ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["LAY-05"])
def test_an_output_gradient_inside_a_larger_array(case):
    x, w, big = integers((2, 3, 10, 10)), integers((5, 3, 3, 3), seed=1), integers((2, 2, 5, 10, 10), seed=2)
    dy = big[:, 1]
    assert element_strides(dy) == (1000, 100, 10, 1)
    dense = dy.copy()
    for call in (
        lambda gradient: convloom.conv_input_grad(x.shape, w, gradient, padding=1),
        lambda gradient: convloom.conv_weight_grad(x, w.shape, gradient, padding=1),
        lambda gradient: convloom.gemm(np.ones((1, 200), F32), gradient.transpose(0, 2, 3, 1).reshape(200, 5)),
    ):
        assert np.array_equal(call(dy), call(dense))


# --- LAY-08: a result inside a larger array, over an old one --------------------------------------------------------


@pytest.mark.parametrize("case", ["LAY-08"])
def test_a_residual_and_a_result_inside_one_buffer(case):
    """The residual is copied to where the result goes and added there; nothing else of the buffer changes."""
    x, w = integers((1, 256, 20, 20), np.float16, 1), integers((256, 256, 3, 3), np.float16, 1, seed=1)
    buffer = integers((1, 768, 20, 20), np.float16, seed=2)
    before = buffer.copy()
    residual, y = buffer[:, 256:512], buffer[:, 512:768]
    y[...] = residual
    assert convloom.conv(x, w, padding=1, out=y, accumulate=True) is y
    assert np.array_equal(y, convloom.conv(x, w, padding=1) + before[:, 256:512])
    assert np.array_equal(buffer[:, :512], before[:, :512])


# --- LAY-09: backwards ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["LAY-09"])
def test_a_flipped_input(case):
    base, w = guarded(integers((1, 1, 31), np.float64)), integers((1, 1, 31), np.float64, seed=1)
    x = base.array[:, :, ::-1]
    assert element_strides(x)[2] == -1
    assert np.array_equal(convloom.conv(x, w, padding=15), convloom.conv(x.copy(), w, padding=15))
    assert np.array_equal(convloom.conv(x, w[:, :, ::-1], padding=15)[0, 0], convloom.conv(base.array, w, padding=15)[0, 0, ::-1])  # fmt: skip  # noqa: E501


@pytest.mark.parametrize("case", ["LAY-09-all"])
def test_everything_flipped(case):
    x, w = integers((2, 3, 7, 6)), integers((4, 3, 3, 2), seed=1)
    out = np.zeros((2, 4, 5, 5), F32)
    convloom.conv(x[::-1, ::-1, ::-1, ::-1], w[::-1, ::-1, ::-1, ::-1], out=out[::-1, ::-1, ::-1, ::-1])
    assert np.array_equal(out, convloom.conv(x, w))


# --- LAY-11, LAY-14: products ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["LAY-11"])
def test_one_product_into_results_of_different_strides(case):
    a, b = integers((64, 256), BFLOAT16, 1), integers((256, 128), BFLOAT16, 1, seed=1)
    expected = (a.astype(F32) @ b.astype(F32)).astype(BFLOAT16)
    for strides in ((128, 1), (192, 1), (128, 1)):
        out = Guarded((64, 128), BFLOAT16, strides)
        convloom.gemm(a, b, out=out.array)
        assert np.array_equal(out.array, expected)
        assert out.surroundings_unchanged


@pytest.mark.parametrize("case", ["LAY-14"])
def test_a_batch_dimension_of_one(case):
    a, b = integers((5, 1, 16, 16), np.float16, 2), integers((5, 1, 16, 16), np.float16, 2, seed=1)
    loop = np.stack([a[i, 0] @ b[i, 0] for i in range(5)])[:, None]
    odd = [as_strided(array, array.shape, (512, 2, 32, 2)) for array in (a, b)]
    assert [element_strides(array)[:2] for array in odd] == [(256, 1), (256, 1)]
    assert np.array_equal(convloom.gemm(*odd), loop)
    out = Guarded((5, 1, 16, 16), np.float16)
    assert np.array_equal(convloom.gemm(*odd, out=as_strided(out.array, (5, 1, 16, 16), (512, 2, 32, 2))), loop)
    assert out.surroundings_unchanged


# --- LAY-16: the strides of a result --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["LAY-16"])
def test_weights_seen_through_a_view_of_higher_rank(case):
    x, dense = integers((20, 16, 50)), integers((33, 16, 1), seed=1)
    w = as_strided(dense, (33, 16, 1), (64, 4, 64))
    assert element_strides(w) == (16, 1, 16)
    y = convloom.conv(x, w)
    assert np.array_equal(y, np.einsum("ncl,kc->nkl", x, dense[:, :, 0]))
    problem = conv_problem(
        batch=20, in_channels=16, out_channels=33, in_spatial=(50,), kernel=(1,),
        layouts=(None, plain(element_strides(w)), None),
    )  # fmt: skip
    assert element_strides(y) == tuple(stride.value for stride in problem.dst.layout.strides) == (1650, 50, 1)
