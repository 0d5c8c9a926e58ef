"""Kernels shared by both systems: one folder an operation, `dispatch.py` picks the implementation.

Importing this package starts nothing in JAX. It only appends one XLA flag, because XLA:CPU's YNN dot fusion
(jaxlib >= 0.10.2) returns wrong gradients for LoRA and integrated-gradients code; the flag must stand before the
backend starts. `tests/kernels/test_xla_flag.py` is the regression test.
"""
import os

_FLAG = "--xla_cpu_experimental_ynn_fusion_type="

if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " " + _FLAG).strip()
