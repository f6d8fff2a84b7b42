"""KV copies between the device pool and the host pool, issued on the current stream.

They stand for the kernels of HiCache's `direct` io backend, with the layouts `layer_first` (`transfer_kv_direct`) and
`page_first_direct` (the other two). Indices name token rows; a page is a contiguous run of `page_size` rows. A copy
reads its source when it runs, not when it is issued: a page that is reused while a held copy still needs it is copied
wrong, as on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_hooks.sglang.testbed.streams import current_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def transfer_kv_direct(
    src_layers: Sequence[Tensor],
    dst_layers: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    page_size: int,  # noqa: ARG001 - the kernel's signature
) -> None:
    """Copy rows to rows, for each pair of layer buffers of shape `[rows, heads, head_dim]`."""

    def copy() -> None:
        for src, dst in zip(src_layers, dst_layers, strict=True):
            dst[dst_indices] = src[src_indices]

    current_stream().enqueue(copy)


def transfer_kv_per_layer_direct_pf_lf(  # noqa: PLR0913, PLR0917 - the kernel's signature
    src_ptrs: Sequence[Tensor],
    dst_ptrs: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    page_size: int,
) -> None:
    """Copy one layer of page-first host pages, `[pages, layers, page_size, ...]`, into device rows, `[rows, ...]`."""

    def copy() -> None:
        pages = src_indices[::page_size] // page_size
        for src, dst in zip(src_ptrs, dst_ptrs, strict=True):
            dst[dst_indices] = src[pages, layer_id].flatten(0, 1).view(-1, *dst.shape[1:])

    current_stream().enqueue(copy)


def transfer_kv_all_layer_direct_lf_pf(
    src_ptrs: Sequence[Tensor],
    dst_ptrs: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    page_size: int,
) -> None:
    """Copy device rows, `[rows, ...]`, into every layer of page-first host pages, `[pages, layers, page_size, ...]`.

    `src_ptrs` lists the layers of the first component (K), then those of the next (V); `dst_ptrs` has one buffer for
    each component.
    """

    def copy() -> None:
        pages = dst_indices[::page_size] // page_size
        layers = len(src_ptrs) // len(dst_ptrs)
        for i, src in enumerate(src_ptrs):
            dst = dst_ptrs[i // layers]
            dst[pages, i % layers] = src[src_indices].view(-1, page_size, *dst.shape[3:])

    current_stream().enqueue(copy)


KERNELS = (transfer_kv_direct, transfer_kv_per_layer_direct_pf_lf, transfer_kv_all_layer_direct_lf_pf)
"""All of them, each under the name by which SGLang calls it."""
