"""STAM: a clinical memory that knows what still holds, keeps what held before, and can say why."""
