"""What every part of the lab uses: its state, its errors, its cache."""
