"""Import-only stand-in for Hugging Face's datasets, for SGLang's test helpers, and only where there is no real one.

`sglang.test.test_utils` imports SGLang's benchmarks, and these import `load_dataset`. Tests of the protocol load none.
"""


def load_dataset(*_args: object, **_kwargs: object) -> object:
    raise ImportError("datasets is not installed: this is a stand-in of Quiesce's testbed, which loads nothing")
