"""Devices that are not here: the TPU compiler of the `tpu` extra (libtpu) needs no TPU to compile for one."""
import importlib.util
import os

import pytest


@pytest.fixture(scope="session")
def v5e_2x2() -> list:
    """The four devices of a TPU v5e 2x2, 16 GB each, to compile for."""
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed (extra `tpu`)")
    from jax.experimental import topologies

    os.environ |= {
        "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": "v5litepod-4",  # nobody is asked what this machine is
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # compiling holds no device, so test processes do not exclude each other
        "TPU_LOG_DIR": "disabled",
    }
    return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
