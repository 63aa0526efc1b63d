"""The privacy ledger: what a training really buys."""
