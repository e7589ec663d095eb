"""The algorithm: decoding, drafting, verifying, and the record of it all."""
