"""Python's garbage collector looks through all that SGLang's imports make, again and again: a sixth of their time.

Read by each process of an engine under the testbed when it starts; the collector stays on, and looks less often.
"""

import gc

gc.set_threshold(50_000, 10, 10)
