"""dprepro: differentially private deep learning, reproduced, with a privacy ledger beside every number."""
