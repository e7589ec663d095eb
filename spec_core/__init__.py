"""The algorithm: decoding, drafting, verifying, and the record of it all."""

import os

# OpenMP reads this when torch is loaded. A thread that spins for long while it waits keeps out the very one it waits
# for wherever a browser or another run wants the same cores; one that sleeps at once costs a fifth of a quiet machine's
# speed (docs/decisions.md, 16). So it spins about as long as it takes to get from one matrix to the next.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "5000"
