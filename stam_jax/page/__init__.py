"""Timeline pages: what a memory holds, held and why, as offline HTML files that run nothing but their own script."""
from stam_jax.page.page import write_index, write_page

__all__ = ["write_index", "write_page"]
