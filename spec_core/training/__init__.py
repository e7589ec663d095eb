"""How the bundled drafters were made: the target writes a corpus, its features are stored once, and one command per
drafter trains on them. Everything here runs on two CPU cores and resumes where it was stopped."""
