"""Under which names a trial keeps what pilots and proposers need."""

PILOT_KEY = "optuna_dp:pilot"
PROPOSER_KEY = "optuna_dp:proposer"
FROZEN_KEY = "optuna_dp:frozen"
