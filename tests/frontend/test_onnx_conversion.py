"""ONNX nodes become the right problems: geometry, strides, bias and scaling, and clear refusals."""

import numpy as np
import pytest

from convloom.errors import IllegalProblem, NotYetSupported
from convloom.frontend.onnx_network import OnnxNode
from convloom.frontend.onnx_nodes import node_call
from convloom.problem.conv import Direction, Scaling
from convloom.problem.gemm import BiasAxis


def zeros(*shape):
    return np.zeros(shape, np.float32)


def call(operator, *inputs, **attributes):
    return node_call(OnnxNode("n", operator, attributes, (), "y"), inputs)


def integers(sizes):
    return tuple(size.value for size in sizes)


def strides(spec):
    return integers(spec.layout.strides)


def test_convolution_fields():
    made = call(
        "Conv",
        zeros(2, 6, 9, 8),
        zeros(4, 3, 3, 2),
        zeros(4),
        group=2,
        strides=[2, 1],
        pads=[1, 0, 2, 1],
        dilations=[1, 3],
    )
    problem = made.problem
    assert problem.direction is Direction.FWD
    assert (integers(problem.in_spatial), integers(problem.out_spatial)) == ((9, 8), (5, 6))
    assert (problem.stride, problem.dilation, problem.pad_begin) == ((2, 1), (1, 3), (1, 0))
    assert (problem.groups.value, problem.bias.name) == (2, "f32")
    assert made.shape == integers(problem.dst_shape) == (2, 4, 5, 6)
    assert made.operands.bias.shape == (4,)


def test_transposed_convolution_is_backward_by_data():
    made = call("ConvTranspose", zeros(1, 6, 5), zeros(6, 2, 4), group=3, strides=[3], output_padding=[1])
    assert made.problem.direction is Direction.BWD_D
    assert integers(made.problem.src_shape) == made.shape == (1, 6, 17)
    assert integers(made.problem.wei_shape) == (6, 2, 4)


@pytest.mark.parametrize(
    ("shape", "scale", "bias", "scaling"),
    [
        ((5,), 1.0, BiasAxis.N, Scaling()),
        ((1, 5), 1.0, BiasAxis.N, Scaling()),
        ((3, 1), 1.0, BiasAxis.M, Scaling()),
        ((5,), 0.5, None, Scaling(beta=True)),
        ((3, 5), 1.0, None, Scaling(beta=True)),
        ((1,), 1.0, None, Scaling(beta=True)),
        ((), 1.0, None, Scaling(beta=True)),
    ],
)
def test_the_third_operand_of_gemm(shape, scale, bias, scaling):
    addend = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    made = call("Gemm", zeros(3, 4), zeros(4, 5), addend, beta=scale)
    assert made.problem.scaling == scaling
    if bias is None:
        assert np.array_equal(made.operands.old, np.broadcast_to(addend, (3, 5)))
        assert made.operands.beta == scale
    else:
        assert made.problem.bias_axis is bias
        assert np.array_equal(made.operands.bias, addend.ravel())


def test_a_third_operand_with_factor_zero_is_not_read():
    made = call("Gemm", zeros(3, 4), zeros(4, 5), np.full((3, 5), np.nan, np.float32), beta=0.0)
    assert made.problem.scaling == Scaling()
    assert made.operands.bias is made.operands.old is None


def test_transposes_are_strides():
    made = call("Gemm", zeros(4, 3), zeros(5, 4), transA=1, transB=1, alpha=2.0)
    assert strides(made.problem.a) == (1, 3)
    assert strides(made.problem.b) == (1, 4)
    assert (made.operands.alpha, made.problem.scaling) == (2.0, Scaling(alpha=True))


@pytest.mark.parametrize(
    ("a", "b", "shape"),
    [
        ((4,), (4,), ()),
        ((4,), (2, 4, 5), (2, 5)),
        ((2, 3, 4), (4,), (2, 3)),
        ((3, 4), (4, 5), (3, 5)),
        ((2, 1, 3, 4), (6, 4, 5), (2, 6, 3, 5)),
    ],
)
def test_matrix_products_broadcast_as_in_numpy(a, b, shape):
    made = call("MatMul", zeros(*a), zeros(*b))
    assert made.shape == shape == np.matmul(zeros(*a), zeros(*b)).shape
    assert np.prod(integers(made.problem.c_shape)) == np.prod(shape, dtype=int)


def test_an_operand_shared_by_a_batch_has_stride_zero():
    problem = call("MatMul", zeros(2, 1, 3, 4), zeros(6, 4, 5)).problem
    assert strides(problem.a) == (12, 0, 4, 1)
    assert strides(problem.b) == (0, 20, 5, 1)


@pytest.mark.parametrize(
    ("operator", "inputs", "named"),
    [
        ("Conv", (zeros(1, 3, 8), zeros(4, 3)), "rank"),
        ("Conv", (zeros(1, 3, 8), None), "leaves one out"),
        ("Gemm", (zeros(3, 4), zeros(5, 5)), "inner sizes"),
        ("Gemm", (zeros(3, 4), zeros(4, 5), zeros(2, 5)), "broadcast"),
        ("MatMul", (zeros(2, 3, 4), zeros(3, 4, 5)), "batch"),
        ("MatMul", (zeros(), zeros(3)), "dimension"),
    ],
)
def test_faults_name_what_is_wrong(operator, inputs, named):
    with pytest.raises(IllegalProblem, match=named):
        call(operator, *inputs)


def test_another_operator_is_refused():
    with pytest.raises(NotYetSupported, match="Conv, ConvTranspose, Gemm, MatMul"):
        call("Einsum", zeros(2), zeros(2))
