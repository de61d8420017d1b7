"""Launches one OpenCL kernel on Oclgrind; run by an interpreter that has pyopencl[oclgrind], with nothing of convloom.

Usage: python oclgrind_launch.py SOURCE.cl NAME BLOCKS THREADS BUFFER.npy .. ; findings go to standard error.
"""

import sys
from pathlib import Path

import numpy as np
import pyopencl as cl


def main(source, name, blocks, threads, *buffers):
    platform = next(item for item in cl.get_platforms() if "oclgrind" in item.name.lower())
    context = cl.Context(platform.get_devices()[:1])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, Path(source).read_text()).build(cache_dir=False)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    memories = [cl.Buffer(context, flags, hostbuf=np.load(path)) for path in buffers]
    getattr(program, name)(queue, (int(blocks) * int(threads),), (int(threads),), *memories)
    queue.finish()


main(*sys.argv[1:])
