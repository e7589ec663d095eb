"""Before torch is loaded: threads wait asleep. Spinning ones make small models ten times slower on a busy machine."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
