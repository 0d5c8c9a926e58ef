"""The axis alphabet, defined once.

Letters (einsum strings, jaxtyping annotations, docstrings): B batch, T query length, S key length or packed rows,
D model width, N heads or learnable queries, K kv heads or top-K, H head dim or expert hidden width, F ffn, V vocab,
L layers, R LoRA rank, C chunks, M modality, E embedding, P patients.

Logical names (parameter specs, sharding rules): the strings below. `core_jax.mesh.Rules` maps them to mesh axes.
"""
PATIENTS = "patients"  # P: data parallel
ROWS = "rows"          # S: packed observation rows, owned by the device that owns their patients
QUERIES = "queries"    # N: learnable queries and their experts
EMBED = "embed"        # D or E: model or embedding width
HIDDEN = "hidden"      # H: expert hidden width
FFN = "ffn"            # F
HEADS = "heads"        # N of a transformer
KV_HEADS = "kv_heads"  # K of a transformer
HEAD_DIM = "head_dim"  # H of a transformer
VOCAB = "vocab"        # V
LAYERS = "layers"      # L: stacked and scanned, never sharded
POSITIONS = "positions"
TOKENS = "tokens"      # M: tokens of a step laid end to end: data parallel

ALL = (PATIENTS, ROWS, QUERIES, EMBED, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB, LAYERS, POSITIONS, TOKENS)
