"""The copies of HiCache's `direct` io backend, under the name by which accelerators import them."""

from engine_hooks.sglang.testbed.copies import (  # noqa: F401
    transfer_kv_all_layer_direct_lf_pf,
    transfer_kv_direct,
    transfer_kv_per_layer_direct_pf_lf,
)
