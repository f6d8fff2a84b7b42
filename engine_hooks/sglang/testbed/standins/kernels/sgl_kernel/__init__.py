"""Import-only stand-in for SGLang's native kernel wheel, on the path of the testbed's engines alone.

SGLang's CPU engine imports these names while its modules load, before any plugin runs; a spawned scheduler imports
them in order to unpickle its own entry function. It calls them only for features that the testbed does not cover
(speculative decoding, moving KV rows). Calling one says so.
"""

from collections.abc import Callable
from typing import NoReturn


def _unavailable(name: str) -> Callable[..., NoReturn]:
    def call(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU substitute in quiesce's testbed")

    call.__name__ = name
    return call


for _name in (
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
):
    globals()[_name] = _unavailable(_name)
