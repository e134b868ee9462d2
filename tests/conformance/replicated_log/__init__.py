"""What every replicated log must do."""
