"""What every implementation of an interface must do."""
