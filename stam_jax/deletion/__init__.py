"""What may be deleted, under a calibrated bound."""
