"""What is known about models: limits, prices, capabilities."""
