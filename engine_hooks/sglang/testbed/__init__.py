"""Runs the real SGLang engine, with HiCache, on a machine without a GPU, and controls its transfers from outside.

Nothing of SGLang is replaced but what stands for hardware: copy kernels, copy streams and their events, pinned
memory. Scheduler, radix tree, HiCache controller, storage backends, HTTP server and the rest are the engine's own.

`control` holds, steps, delays and fails transfers; `launch` gives the environment and arguments of such an engine;
`server` starts one and ends it; `tinymodel` makes something to serve. `plugin` and `substitute` run in the engine's
processes. `standins` reaches a process only through `launch`.
"""
