"""What every part uses: background work, forks, Redis clients."""
