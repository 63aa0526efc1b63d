"""dprepro: differentially private deep learning, reproduced, with a privacy ledger for every result."""
