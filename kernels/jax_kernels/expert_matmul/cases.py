"""Named shapes of the experts' two products: N experts, P patients, a -> b."""
from __future__ import annotations

CASES = {
    "mortality_in": (8, 16, 4096, 1024),
    "mortality_out": (8, 16, 1024, 4096),
    "mortality_1024": (8, 16, 1024, 1024),
    "adhd_in": (12, 32, 4096, 1024),
    "small_odd": (3, 5, 7, 11),
    "small_one": (1, 1, 2, 3),
}
