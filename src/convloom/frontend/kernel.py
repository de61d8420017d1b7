"""A compiled problem: what it consists of, and the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from convloom.artifact import KernelSource, Requirement
from convloom.compiler import prepare
from convloom.dtypes import S32, DType
from convloom.errors import IllegalProblem, IllegalType
from convloom.frontend.arrays import Family, family_of
from convloom.frontend.bias_gradient import BiasGradient
from convloom.frontend.dims import check_symbols, fact_texts
from convloom.frontend.factors import real_factor
from convloom.frontend.operand_terms import Terms, problem_terms
from convloom.frontend.overlap import Reach, check_all_apart, reach_of
from convloom.frontend.reject_spills import Rejected, first_without_spills
from convloom.frontend.repeat import Calls, Checked, Repeat, remember, signature_of
from convloom.frontend.size_solver import SizeSolver, Values, compile_values
from convloom.frontend.tensor import Tensor
from convloom.frontend.variant import PreparedCall, Variant
from convloom.plan.choose import given_plan, ranked_plans
from convloom.plan.families import Plan, plan_text
from convloom.plan.policy import ANYTHING, Policy
from convloom.problem.bias_gradient import bias_gradient_problem
from convloom.problem.contraction import Contraction
from convloom.problem.conv import Conv, Scaling
from convloom.problem.reference import Problem
from convloom.runtime.build_once import BuildOnce
from convloom.runtime.interface import Device
from convloom.runtime.launch_expression import evaluate, violation
from convloom.runtime.opencl import OpenClDevice
from convloom.target.arch import Target

_MOST_PLACEMENTS = 4096
_MOST_BUILT = 8  # candidates built in search of one that does not spill
_MOST_FACTORS = 64
_NO_FACTORS = (1.0, 0.0)
_NO_OPERANDS: tuple[Any, ...] = ()
_NO_FLOATS: dict[str, float] = {}


class Placement(NamedTuple):
    """All that follows from the shapes and strides of a call."""

    symbols: Values
    result_shape: tuple[int, ...]
    result_strides: tuple[int, ...]
    variant: Variant | None  # None: nothing to launch
    reaches: tuple[Reach, ...]
    calls: dict[tuple[float, float], Calls]  # by factors


class Kernel:
    """A problem compiled for one device; made by `convloom.compile`, safe for many threads.

    The preferred variant may rely on more than the problem says (alignment of pointers, offsets that fit 32 bits). A
    call that breaks this runs a general variant, built when first needed, so that every size that the declared facts
    allow is accepted. A plan given as text is used as it is: there a broken condition is an error. Of the planner's
    candidates those that the device's compiler spills are passed over; `rejected` lists them. `proposed`: texts of
    plans that the preferred variant tries in this order, instead of the planner's own candidates.
    """

    def __init__(
        self,
        problem: Problem,
        device: Device,
        target: Target,
        plan: str | None = None,
        policy: Policy = ANYTHING,
        proposed: tuple[str, ...] = (),
    ) -> None:
        self.problem = problem
        self.policy = policy
        self.device = device
        self.target = target
        self._given = plan
        self._proposed = proposed
        self._has_factors = problem.scaling.alpha or problem.scaling.beta
        self._terms = problem_terms(problem)
        check_symbols(self._terms.symbols)
        self._names = tuple(terms.name for terms in (*self._terms.inputs, self._terms.result))
        self._dtypes = tuple(terms.dtype for terms in (*self._terms.inputs, self._terms.result))
        self._context = device.context if isinstance(device, OpenClDevice) else None
        self._place_name = device.name if self._context is None else "opencl"
        self._solvers: dict[bool, SizeSolver] = {}
        self._placements: dict[Any, Placement] = {}
        self._repeats: dict[Any, Repeat] = {}
        self._has_operands = bool(problem.epilogue.all_operands)
        self._made: dict[str, Variant] = {}
        self.rejected: tuple[Rejected, ...] = ()
        self._variants: BuildOnce[str, Variant] = BuildOnce()
        self._siblings: BuildOnce[Scaling, Kernel] = BuildOnce()
        self._result_values = _result_values(self._terms.result)
        self._normal = None if self._terms.empty else prepare(problem)
        self._preferred = None if self._terms.empty else self._variant("preferred" if plan is None else "given")
        self.bias_gradient: BiasGradient | None = None
        if isinstance(problem, Conv) and problem.bias_grad is not None:
            sums = type(self)(bias_gradient_problem(problem), device, target, None, policy)
            self.bias_gradient = BiasGradient(sums, problem)

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def contraction(self) -> Contraction | None:
        """The contraction in normal form; None if the result is known to be empty."""
        return None if self._normal is None else self._normal.contraction

    @property
    def plan(self) -> str:
        """The plan of the preferred variant as text; empty if the result is known to be empty."""
        return "" if self._preferred is None else plan_text(self._preferred.plan)

    @property
    def plan_record(self) -> Plan | None:
        """The plan of the preferred variant as a record."""
        return None if self._preferred is None else self._preferred.plan

    @property
    def kernel_source(self) -> KernelSource | None:
        """Text and launch arithmetic of the preferred variant."""
        return None if self._preferred is None else self._preferred.source

    @property
    def source(self) -> str:
        """The text of the preferred variant."""
        return "" if self._preferred is None else self._preferred.source.text

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """What the preferred variant asks of a call: declared facts, the operation's rules, what its plan relies on."""
        declared = [
            Requirement(text, f"{symbol.name} was declared so")
            for symbol in self._terms.symbols
            for text in fact_texts(symbol)
        ]
        declared += [Requirement(rule.text, rule.rule) for rule in self._terms.rules]
        relied = () if self._preferred is None else self._preferred.requirements
        return (*declared, *relied)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The kernels built so far, the preferred one first."""
        return tuple(self._made.values())

    def __repr__(self) -> str:
        return f"<convloom kernel on {self.device.name}: {self.plan or 'empty result'}>"

    def _variant(self, label: str) -> Variant:
        return self._variants.get(label, self._make_variant)

    def _make_variant(self, label: str) -> Variant:
        normal = self._normal
        assert normal is not None

        def build(plan: Plan) -> Variant:
            return Variant(label, plan, normal, self._names, self.target, self.device, self.policy)

        if self._given is not None:
            made = build(given_plan(self._given, normal.contraction, self.target, self.policy))
        else:
            plans = self._candidates(normal.contraction, general=label == "general")
            made, rejected = first_without_spills(plans, build)
            self.rejected += rejected
        self._made[label] = made
        return made

    def _candidates(self, contraction: Contraction, *, general: bool) -> tuple[Plan, ...]:
        if self._proposed and not general:
            return tuple(given_plan(text, contraction, self.target, self.policy) for text in self._proposed)
        return ranked_plans(contraction, self.target, _MOST_BUILT, general=general, policy=self.policy)

    def workspace_bytes(self, **sizes: int) -> int:
        """Bytes of scratch memory that a call takes if the problem's dims have these values, 0 for most plans.

        IllegalProblem if a dim that matters is missing.
        """
        variant = self._preferred
        if variant is None:
            return 0
        return evaluate(variant.program.workspace_bytes, sizes)

    # --- the call ---------------------------------------------------------------------------------------------------

    def __call__(
        self,
        first: Any,
        second: Any,
        bias: Any = None,
        out: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        stream: Any = None,
        operands: Sequence[Any] | Mapping[str, Any] = _NO_OPERANDS,
    ) -> Any:
        """Computes the result into `out`, or into a new array of the kind of `first`; returns it.

        `first` and `second` are (src, wei), (dst, wei), (src, dst) by the direction of a Conv, (a, b) of a Gemm, with
        the logical shapes of the problem's docstring; a tensor of blocked layout is passed as its contiguous storage.
        The result is alpha * product + beta * out + bias, where the problem's scaling allows the factors; beta = 0 does
        not read `out`. `operands`: what the problem's epilogue reads, in its order or by name, with extent 1 where they
        are broadcast. A kernel with a bias gradient returns (weight gradient, bias gradient); `bias` is then the
        array for the latter, or None: a new one of shape (oc,). `stream`: None takes the current one of the arrays'
        framework. On CUDA and OpenCL the call returns at once.
        IllegalProblem names the rule, value and remedy; IllegalType where an argument's type or dtype is wrong.
        """
        if type(alpha) is not float or type(beta) is not float:
            alpha, beta = real_factor("alpha", alpha), real_factor("beta", beta)
        if self._has_factors or alpha != 1.0 or beta != 0.0:
            factors = (alpha, beta)
            return self._scaled(alpha, beta, out)._run(first, second, bias, operands, out, factors, stream)
        return self._run(first, second, bias, operands, out, _NO_FACTORS, stream)

    def _run(
        self,
        first: Any,
        second: Any,
        bias: Any,
        operands: Sequence[Any] | Mapping[str, Any],
        out: Any,
        factors: tuple[float, float],
        stream: Any,
    ) -> Any:
        if self.bias_gradient is not None:
            return self._run_both(first, second, bias, operands, out, factors, stream)
        extras = self._ordered(operands) if operands is not _NO_OPERANDS or self._has_operands else _NO_OPERANDS
        arrays = (first, second, *extras) if bias is None else (first, second, bias, *extras)
        signature = signature_of(arrays, out)
        key = signature, bias is None, factors
        found = self._repeats.get(key) if signature is not None else None
        if found is not None:
            return found(arrays, out, stream)
        family = family_of(self._names[0], first)
        tensors = self._adapted(family, first, second, bias, extras)
        result = None if out is None else self._adapted_result(out)
        if stream is None:
            stream = family.stream(first)
        returned = self.run(family, tensors, out, result, factors, stream, self._names)
        repeat = None if signature is None else self.repeat(family, tensors, out is not None, factors, self._names)
        if repeat is not None:
            remember(self._repeats, key, repeat)
        return returned

    def _run_both(
        self,
        first: Any,
        second: Any,
        gradient: Any,
        operands: Sequence[Any] | Mapping[str, Any],
        out: Any,
        factors: tuple[float, float],
        stream: Any,
    ) -> tuple[Any, Any]:
        """The gradients of weights and bias; `gradient` is the array for the latter, or None."""
        assert self.bias_gradient is not None
        family = family_of(self._names[0], first)
        tensors = self._adapted(family, first, second, None, self._ordered(operands))
        result = None if out is None else self._adapted_result(out)
        if stream is None:
            stream = family.stream(first)
        weights = self.run(family, tensors, out, result, factors, stream, self._names)
        return weights, self.bias_gradient.run(family, tensors[1], gradient, factors, stream)

    def run(
        self,
        family: Family,
        tensors: list[Tensor],
        out: Any,
        result: Tensor | None,
        factors: tuple[float, float],
        stream: Any,
        names: tuple[str, ...],
    ) -> Any:
        """The call on adapted arrays whose types and devices are known to be right.

        `result` describes `out`, both None: allocated by the family; it is added to `tensors`. `factors` are alpha and
        beta as the kernel's scaling has them; `names` serve messages.
        """
        if result is None:
            if self.problem.epilogue.steps.reads_old:
                raise IllegalProblem("the epilogue reads the old content of out; got no out; pass out=")
            placement = self._placed(tensors, False)
            out = self._allocator(family, placement)()
            tensors.append(family.adapt(names[-1], out))
        else:
            tensors.append(result)
            placement = self._placed(tensors, True)
            if isinstance(result.address, int):
                check_all_apart(tensors, placement.reaches, names)
        if self._context is not None:
            self._check_context(tensors, names)
        if placement.variant is not None:
            self._launch(placement, family, tensors, factors, stream)
        return out

    def repeat(
        self,
        family: Family,
        tensors: list[Tensor],
        with_result: bool,
        factors: tuple[float, float],
        names: tuple[str, ...],
    ) -> Repeat | None:
        """What runs calls like one that `run` has done, from `tensors` as it leaves them; None: check every call."""
        placement = self._placed(tensors if with_result else tensors[:-1], with_result)
        return Repeat(
            family,
            Checked(tuple(tensors), placement.reaches, names),
            None if with_result else self._allocator(family, placement),
            None if placement.variant is None else self._calls(placement, factors),
        )

    def _scaled(self, alpha: float, beta: float, out: Any) -> Kernel:
        """The kernel that needs exactly these factors: beta = 0 must not read `out`, and integers stay integers."""
        allowed, integral = self.problem.scaling, self.problem.acc is S32
        for name, factor, neutral, has in (("alpha", alpha, 1.0, allowed.alpha), ("beta", beta, 0.0, allowed.beta)):
            if factor != neutral and not has:
                raise IllegalProblem(
                    f"a kernel takes {name} only if its problem says so; got {name}={factor} for {allowed}; "
                    f"compile the problem with Scaling({name}=True)"
                )
        if beta != 0.0 and out is None:
            raise IllegalProblem(f"beta scales the old content of out; got beta={beta} and no out; pass out=")
        needed = Scaling(allowed.alpha and (alpha != 1.0 or not integral), allowed.beta and beta != 0.0)
        return self if needed == allowed else self._siblings.get(needed, self._sibling)

    def _sibling(self, scaling: Scaling) -> Kernel:
        return type(self)(replace(self.problem, scaling=scaling), self.device, self.target, self._given, self.policy)

    # --- arrays -----------------------------------------------------------------------------------------------------

    def _ordered(self, operands: Sequence[Any] | Mapping[str, Any]) -> tuple[Any, ...]:
        """The epilogue's operands in its order."""
        names = [operand.name for operand in self.problem.epilogue.all_operands]
        given = dict(operands) if isinstance(operands, Mapping) else dict(zip(names, operands, strict=False))
        if len(operands) != len(names) or set(given) != set(names):
            found = sorted(given) if isinstance(operands, Mapping) else len(operands)
            raise IllegalProblem(f"the problem's epilogue reads the operands {names}; got {found}; pass operands=")
        return tuple(given[name] for name in names)

    def _adapted(self, family: Family, first: Any, second: Any, bias: Any, extras: tuple[Any, ...]) -> list[Tensor]:
        names = self._names
        tensors = [family.adapt(names[0], first), family_of(names[1], second).adapt(names[1], second)]
        if bias is not None or self.problem.bias is not None:
            self._check_bias(bias)
            tensors.append(family_of("bias", bias).adapt("bias", bias))
        extra_names = names[len(tensors) : -1]
        tensors += [family_of(name, extra).adapt(name, extra) for name, extra in zip(extra_names, extras, strict=True)]
        for tensor, dtype, name in zip(tensors, self._dtypes, names, strict=False):
            self._check_place(name, tensor, dtype)
        return tensors

    def _check_bias(self, bias: Any) -> None:
        if bias is None:
            raise IllegalProblem(f"the problem has a bias ({self.problem.bias}); got none; pass bias=")
        if self.problem.bias is None:
            raise IllegalProblem("the problem has no bias; got one; leave it out or compile the problem with bias=")

    def _adapted_result(self, out: Any) -> Tensor:
        name, dtype = self._names[-1], self._dtypes[-1]
        family = family_of(name, out)
        family.check_writable(name, out)
        tensor = family.adapt(name, out)
        self._check_place(name, tensor, dtype)
        return tensor

    def _check_place(self, name: str, tensor: Tensor, dtype: DType) -> None:
        if tensor.dtype is dtype and tensor.device == self._place_name:
            return
        if tensor.dtype is not dtype:
            raise IllegalType(
                f"{name} must have elements of type {dtype}; got {tensor.dtype}; convert it or compile for that type"
            )
        raise IllegalProblem(
            f"all arrays must lie on the kernel's device, {self.device.name}; {name} lies on {tensor.device}; "
            "move it there, or compile the problem for that device"
        )

    def _check_context(self, tensors: list[Tensor], names: tuple[str, ...]) -> None:
        """IllegalProblem for an OpenCL buffer of another context: memory belongs to one."""
        for tensor, name in zip(tensors, names, strict=True):
            if tensor.keeper != self._context:
                raise IllegalProblem(
                    f"arrays must live in the context of {self.device.name}; {name} lives in another OpenCL context; "
                    "allocate it through device_named(..).queue"
                )

    def _allocator(self, family: Family, placement: Placement) -> Callable[[], Any]:
        strides = placement.result_strides
        if min(strides, default=0) < 0:
            raise IllegalProblem(
                f"the inputs must determine the result's layout, with strides >= 0; {self._names[-1]} has "
                f"{_layout_text(self._terms.result)}; pass out="
            )
        return family.allocator(placement.result_shape, strides, self._dtypes[-1], self._place_name)

    # --- sizes ------------------------------------------------------------------------------------------------------

    def _placed(self, tensors: list[Tensor], with_result: bool) -> Placement:
        key = (with_result, *[tensor[1:3] for tensor in tensors])
        found = self._placements.get(key)
        if found is None:
            found = self._place(tensors, with_result)
            if len(self._placements) >= _MOST_PLACEMENTS:
                self._placements.clear()
            self._placements[key] = found
        return found

    def _place(self, tensors: list[Tensor], with_result: bool) -> Placement:
        symbols = self._solver(with_result)(
            tuple([tensor.shape for tensor in tensors]), tuple([tensor.strides for tensor in tensors])
        )
        shape, strides = self._result_values(symbols)
        empty = 0 in shape
        return Placement(
            symbols, shape, strides, None if empty else self._fitting(symbols), tuple(map(reach_of, tensors)), {}
        )

    def _solver(self, with_result: bool) -> SizeSolver:
        found = self._solvers.get(with_result)
        if found is None:
            tensors = (*self._terms.inputs, self._terms.result) if with_result else self._terms.inputs
            found = self._solvers[with_result] = SizeSolver(tensors, self._terms.symbols, self._terms.rules)
        if found.undetermined:
            names = ", ".join(symbol.name for symbol in found.undetermined)
            remedy = "use each dim as an extent or a stride of some tensor" if with_result else "pass out="
            raise IllegalProblem(f"the arrays must determine every dim; they leave {names} open; {remedy}")
        return found

    def _fitting(self, symbols: Values) -> Variant | None:
        """The preferred variant if the sizes satisfy its conditions, else the general one."""
        preferred = self._preferred
        if preferred is None or preferred.fits(symbols):
            return preferred
        return self._fallback(preferred, symbols)

    def _fallback(self, preferred: Variant, symbols: Values) -> Variant:
        """The general variant, unless the plan was given: then IllegalProblem names the broken condition."""
        if self._given is None:
            return self._variant("general")
        broken = next(item for item in preferred.requirements if not evaluate(item.condition, symbols))
        raise IllegalProblem(f"{violation(broken, symbols)}; leave the plan out to have a variant for such calls")

    def _launch(
        self,
        placement: Placement,
        family: Family,
        tensors: list[Tensor],
        factors: tuple[float, float],
        stream: Any,
    ) -> None:
        addresses = [tensor.address for tensor in tensors]
        if self._context is None:
            call = self._calls(placement, factors).at(addresses)
        else:
            call, _ = self._prepared(placement, factors, addresses)
        call.enqueue(family, addresses, stream)

    def _calls(self, placement: Placement, factors: tuple[float, float]) -> Calls:
        found = placement.calls.get(factors)
        if found is None:
            found = Calls(partial(self._prepared, placement, factors), self._names, self._dtypes)
            remember(placement.calls, factors, found, _MOST_FACTORS)
        return found

    def _prepared(
        self, placement: Placement, factors: tuple[float, float], addresses: list[Any]
    ) -> tuple[PreparedCall, bool]:
        """The launches at these addresses, and whether they serve all addresses of equal alignment."""
        variant, symbols = placement.variant, placement.symbols
        assert variant is not None
        periodic = variant.is_periodic
        if variant.has_address_conditions:
            known = variant.addressed(symbols, addresses)
            if not variant.aligned(known):
                named = {f"{name}_address": place for name, place in zip(self._names, addresses, strict=True)}
                variant = self._fallback(variant, {**known, **named})
                periodic = periodic and variant.is_periodic
        floats = {"alpha": factors[0], "beta": factors[1]} if self._has_factors else _NO_FLOATS
        return variant.prepared(addresses, symbols, floats), periodic


def _result_values(result: Terms) -> Callable[[Values], tuple[tuple[int, ...], tuple[int, ...]]]:
    """Shape and strides of the array that holds the result: its storage if the layout is blocked."""
    if result.flat:
        storage = compile_values((result.storage,))
        return lambda symbols: (storage(symbols), (1,))
    rank = len(result.shape)
    both = compile_values((*result.shape, *result.layout.strides))

    def values(symbols: Values) -> tuple[tuple[int, ...], tuple[int, ...]]:
        found = both(symbols)
        return found[:rank], found[rank:]

    return values


def _layout_text(terms: Terms) -> str:
    return f"strides ({', '.join(map(str, terms.layout.strides))})"
