"""One step before its updates: its rows are sampled, scored, rewarded and chosen."""
