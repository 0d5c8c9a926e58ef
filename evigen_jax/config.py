"""Settings of a run, composed of frozen dataclasses that stand next to the code that reads them.

A file given by `--config` holds `get_config()` returning a `Config`; `--set train.lr=3e-4` changes one field.
"""
from __future__ import annotations

import dataclasses
from typing import Literal

from evigen_jax.retriever import EviGenConfig
from evigen_jax.train import TrainConfig


@dataclasses.dataclass(frozen=True)
class CohortConfig:
    """Read by `evigen cohort`. The paper's criteria are appendix F.1; `none` keeps every patient with an index stay."""

    criteria: Literal["paper", "none"] = "paper"
    notes: Literal["discharge", "rendered", "none"] = "discharge"
    keep_in_hospital_deaths: bool = False
    age_matched: int | None = 1            # clinosim: survivors kept for each death, matched on age; none: all
    fractions: tuple[float, ...] = (0.8, 0.1, 0.1)
    planted_patients: int = 3000
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class ObservationConfig:
    """How a note becomes chunks (A.1.1): size and overlap in tokens of the encoder, or in words."""

    size: int = 200
    overlap: int = 40
    unit: Literal["tokens", "words"] = "tokens"


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """name: `minilm`, or a Hugging Face folder of the BERT family, ModernBERT or Qwen3-Embedding. pooling None: what the
    folder says. dtype: of the stored vectors. weights: of the matrices of a decoder (Qwen3-Embedding).
    """

    name: str = "minilm"
    pooling: Literal["cls", "mean", "last"] | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    weights: Literal["float32", "bfloat16"] = "float32"


@dataclasses.dataclass(frozen=True)
class ExplainConfig:
    """Evidence packs (3.2). tolerance: completeness error that ends the doubling of nodes."""

    k: int = 5
    notes_only: bool = False
    ranking: Literal["absolute", "signed"] = "absolute"
    target: Literal["logit", "prob"] = "logit"
    tolerance: float = 1e-4
    ig_batch: int = 64


@dataclasses.dataclass(frozen=True)
class GenerateConfig:
    """Read by `evigen generate --model` (3.3). max_tokens: new tokens, 4,096 in Table 6 (16,384 for a model that thinks).

    form: "schema" binds the answer to a JSON schema made for the pack, "free" leaves its form to the prompt. thinking:
    the switch of models that think. Of a local model: rows: answers written side by side; dtype: of its matrices; length:
    most tokens of prompt and answer together, None: the model's, at most 8,192; adapter: PEFT folder of a LoRA adapter
    that writes. concurrency: requests under way at an endpoint.
    """

    max_tokens: int = 4096
    temperature: float = 0.0
    seed: int = 0
    form: Literal["schema", "free"] = "schema"
    thinking: Literal["on", "off", "default"] = "default"
    rows: int = 8
    dtype: Literal["float32", "bfloat16"] = "float32"
    length: int | None = None
    adapter: str | None = None
    concurrency: int = 8


@dataclasses.dataclass(frozen=True)
class VerifyConfig:
    """Quote checks (G.1). threshold: score out of 100 at which a quote stands in its source."""

    threshold: float = 90.0
    workers: int = 1


@dataclasses.dataclass(frozen=True)
class Config:
    cohort: CohortConfig = CohortConfig()
    observations: ObservationConfig = ObservationConfig()
    encoder: EncoderConfig = EncoderConfig()
    model: EviGenConfig = EviGenConfig(d=384, n_note=4, n_code=4)  # d is taken from the store; 4 + 4 queries as for mortality
    train: TrainConfig = TrainConfig()
    explain: ExplainConfig = ExplainConfig()
    generate: GenerateConfig = GenerateConfig()
    verify: VerifyConfig = VerifyConfig()
