"""The algorithm: decoding, drafting, verifying, and the record of it all."""

import os

# OpenMP reads this when torch is loaded. A thread that spins for long while it waits keeps out the very one it waits
# for wherever a browser or another run wants the same cores; one that sleeps at once costs a fifth of a quiet machine's
# speed (docs/decisions.md, 16). So it spins about as long as it takes to get from one matrix to the next.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "5000"

# PyTorch reads this when it takes its first memory: weights in pages of 2 MB instead of 4 kB, whose addresses the
# processor need not look up all the time (Linux; docs/decisions.md, 35).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
