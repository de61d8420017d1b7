"""Hand-written kernels without barriers, one text for the cpu and the cuda device: each thread runs one C function."""

from __future__ import annotations

from dataclasses import dataclass

from convloom.artifact import Access, BufferParam, KernelSource, Language, ScalarKind, ScalarParam

THREADS = 256

_CUDA_PROLOGUE = """
#define FUNCTION static __device__
#define ADD64(p, v) atomicAdd((unsigned long long *)(p), (unsigned long long)(v))
#define MIN64(p, v) atomicMin((long long *)(p), (long long)(v))
"""
_C_PROLOGUE = """
#define FUNCTION static
#define ADD64(p, v) __atomic_fetch_add((i64 *)(p), (i64)(v), __ATOMIC_RELAXED)
#define MIN64(p, v) least((i64 *)(p), (i64)(v))
static void least(long long *place, long long value) {
  long long seen = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (value < seen && !__atomic_compare_exchange_n(place, &seen, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}
"""
_TYPES = """
typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
"""
_CUDA_ENTRY = """
extern "C" __global__ void NAME(PARAMETERS) {
  i64 thread = (i64)blockIdx.x * THREADS + threadIdx.x;
  if (thread < threads) NAME_thread(ARGUMENTS);
}
"""
_C_ENTRY = """
void NAME(void *const *buffers, const i64 *integers, const double *floats, i64 first, i64 last) {
LOCALS
  i64 end = last * THREADS < threads ? last * THREADS : threads;
  for (i64 thread = first * THREADS; thread < end; ++thread) NAME_thread(ARGUMENTS);
}
"""


@dataclass(frozen=True, slots=True)
class PortableKernel:
    """A kernel as the body of one C function.

    `pointers` (name, C type) and `integers` (all i64) are its parameters, besides `thread` and `threads`. `helpers`
    are functions that it calls; they are declared FUNCTION. ADD64 and MIN64 are atomic.
    """

    name: str
    pointers: tuple[tuple[str, str], ...]
    integers: tuple[str, ...]
    body: str
    helpers: str = ""

    def source(self, language: Language, arch: str) -> KernelSource:
        """The kernel for a device; a launch takes the integers and `threads` as symbols."""
        write = self._cuda if language is Language.CUDA else self._c
        integers = ("threads", *self.integers)
        return KernelSource(
            name=self.name,
            language=language,
            arch=arch,
            text=write(integers).replace("NAME", self.name).replace("THREADS", f"{THREADS}ll"),
            buffers=tuple(BufferParam(name, "u8", Access.READ_WRITE) for name, _ in self.pointers),
            scalars=tuple(ScalarParam(name, name, ScalarKind.I64) for name in integers),
            grid=(f"(threads + {THREADS - 1}) // {THREADS}", "1", "1"),
            block=(THREADS, 1, 1) if language is Language.CUDA else (1, 1, 1),
            shared_bytes=0,
            requirements=(),
        )

    def _parameters(self, integers: tuple[str, ...]) -> str:
        return ", ".join([f"{kind} *{name}" for name, kind in self.pointers] + [f"i64 {name}" for name in integers])

    def _function(self, integers: tuple[str, ...]) -> str:
        return f"{self.helpers}\nFUNCTION void NAME_thread({self._parameters(integers)}, i64 thread) {{{self.body}}}\n"

    def _arguments(self, integers: tuple[str, ...]) -> str:
        return ", ".join([*(name for name, _ in self.pointers), *integers, "thread"])

    def _cuda(self, integers: tuple[str, ...]) -> str:
        entry = _CUDA_ENTRY.replace("PARAMETERS", self._parameters(integers))
        return (
            _CUDA_PROLOGUE + _TYPES + self._function(integers) + entry.replace("ARGUMENTS", self._arguments(integers))
        )

    def _c(self, integers: tuple[str, ...]) -> str:
        pointers = [f"  {kind} *{name} = buffers[{place}];" for place, (name, kind) in enumerate(self.pointers)]
        numbers = [f"  i64 {name} = integers[{place}];" for place, name in enumerate(integers)]
        entry = _C_ENTRY.replace("LOCALS", "\n".join(pointers + numbers))
        return _TYPES + _C_PROLOGUE + self._function(integers) + entry.replace("ARGUMENTS", self._arguments(integers))
