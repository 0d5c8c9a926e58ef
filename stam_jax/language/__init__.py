"""Writers that are language models, and what they are taught with."""
