"""Every test runs on eight fake CPU devices with strict dtype promotion and no silent rank promotion."""
import atexit
import os
import pathlib
import shutil
import tempfile

os.environ["JAX_PLATFORMS"] = os.environ.get("EVIGEN_TEST_PLATFORM", "cpu")
# Eight devices; and no LLVM optimisation, since tests compile much and compute little (it halves the suite's time).
os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
                           " --xla_backend_optimization_level=0").strip()
# What is compiled once is loaded by every test, process and subprocess that needs the same program: one folder a run.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled = tempfile.mkdtemp(prefix="compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")

import jax_kernels  # noqa: E402, F401  (appends the XLA flag)
import pytest  # noqa: E402


def pytest_configure(config):
    import jax

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    # eight devices on few cores: computations that are under way together can wait for each other's collectives for ever
    jax.config.update("jax_cpu_enable_async_dispatch", False)


@pytest.fixture(scope="module")
def quick_compiles():
    """Half the compile time, for modules that compile much and compute little."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session")
def repository() -> pathlib.Path:
    return pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def ehr_data(repository) -> pathlib.Path:
    """Folder with the data of others; EHR_DATA_DIR, or ../shared/data beside the checkout."""
    folder = pathlib.Path(os.environ.get("EHR_DATA_DIR", repository.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data folder: set EHR_DATA_DIR (looked at {folder.name}/ beside the checkout)")
    return folder
