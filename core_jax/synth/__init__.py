"""Planted cohort: seeded synthetic patients with gold evidence."""
