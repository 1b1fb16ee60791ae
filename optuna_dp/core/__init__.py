"""What every room uses: values that are checked, stored and shown, and Optuna's private names."""
