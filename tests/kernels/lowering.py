"""Lower a function for a platform that this machine lacks."""
import contextlib

import jax
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

DEVICES = {"cuda": ("NVIDIA H200", None, "gpu"), "tpu": ("TPU v5 lite", 1, "tpu")}


def absent(platform: str) -> AbstractMesh:
    kind, cores, name = DEVICES[platform]
    return AbstractMesh((1,), ("x",), abstract_device=AbstractDevice(device_kind=kind, num_cores=cores, platform=name))


def lower(f, *args, platform: str) -> str:
    """StableHLO text of jit(f)(*args) for "cuda" or "tpu". From jax 0.11 a kernel learns the device from a mesh."""
    newer = tuple(int(n) for n in jax.__version__.split(".")[:2]) >= (0, 11)
    with use_abstract_mesh(absent(platform)) if newer else contextlib.nullcontext():
        return jax.jit(f).trace(*args).lower(lowering_platforms=(platform,)).as_text()
